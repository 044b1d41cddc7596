"""How to read a curve between its runs: each run within a curve is left out and read from the others."""

import math
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from attention_cem.studies import mse_at_accuracy, pareto_front
from attention_cem.studies.curves import Point


class LeftOut(NamedTuple):
    """What the runs left out were read as, in relation to what they are: ln of read MSE over measured MSE."""

    straight: list[float]
    logarithm: list[float]
    curves: int


def left_out(curves: Iterable[Sequence[Point]]) -> LeftOut:
    """Read every efficient run but the outermost of each curve from the others, by straight lines in MSE and in ln MSE.

    >>> found = left_out([[(0.80, 0.03), (0.85, 0.02), (0.90, 0.01)]])
    >>> found.curves, round(found.straight[0], 6), round(found.logarithm[0], 3)  # ln of 0.0173 over 0.02
    (1, 0.0, -0.144)
    """
    straight, logarithm, used = [], [], 0
    for front in map(pareto_front, curves):
        for place in range(1, len(front) - 1):
            (accuracy, mse), others = front[place], front[:place] + front[place + 1 :]
            read = mse_at_accuracy(others, accuracy)
            log_read = mse_at_accuracy([(at, math.log(value)) for at, value in others], accuracy)
            if read is None or log_read is None:
                raise ValueError(f"accuracy {accuracy} lies between no two of {others}")
            straight.append(math.log(read / mse))
            logarithm.append(log_read - math.log(mse))
        used += len(front) > 2
    return LeftOut(straight, logarithm, used)


def left_out_lines(found: LeftOut) -> list[str]:
    """Both readings in a table: root mean square and mean of the errors, and how often each is nearer."""
    nearer = sum(abs(a) < abs(b) for a, b in zip(found.straight, found.logarithm, strict=True))
    rows = (
        ("straight lines in MSE (used)", found.straight, nearer),
        ("straight lines in ln MSE", found.logarithm, len(found.straight) - nearer),
    )
    lines = [f"| {found.curves} curves, {len(found.straight)} runs left out | error, rms | mean | nearer |"]
    lines.append("| --- " * 4 + "|")
    return lines + [
        f"| {name} | {math.sqrt(mean(e * e for e in errors)):.3f} | {mean(errors):+.3f} | {count} |"
        for name, errors, count in rows
    ]
