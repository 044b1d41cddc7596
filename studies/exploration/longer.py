"""Tables of cells that were attacked or trained for longer than usual."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from attention_cem.studies import mse_at_accuracy
from attention_cem.studies.curves import Point
from studies.exploration.designs import cell_of, design, strength

ATTACK_EPOCHS = 15
_SAME_CLIENT = -1


def longer_table(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Cells attacked for longer: one that only hides falls further.

    The usual attack is that on the very same client where it was run, else that on clients trained with the same seed.
    """
    groups: dict[tuple[str, str, int], dict[int, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cell = cell_of(row)
        runs = groups[(design(cell), strength(cell), cell["seed"])]
        runs[cell["attack_epochs"]].append((row["accuracy_test"], row["mse_test"]))
        if "mse_test_usual" in row:
            runs[_SAME_CLIENT].append((row["accuracy_test"], row["mse_test_usual"]))
    lines = []
    for (title, given, seed), by_epochs in sorted(groups.items()):
        trained_again = by_epochs.pop(ATTACK_EPOCHS, [])
        short = by_epochs.pop(_SAME_CLIENT, trained_again)
        for epochs, longer in sorted(by_epochs.items()):
            ratio = f"{mean(m for _, m in longer) / mean(m for _, m in short):.2f}×" if short else "–"
            cells = (title, given, str(seed), _runs(short), str(epochs), _runs(longer), ratio)
            lines.append(f"| {' | '.join(cells)} |")
    head = f"| design | strength | seed | {ATTACK_EPOCHS} epochs: accuracy %, MSE | epochs | accuracy %, MSE | ratio |"
    return [head, "| --- " * 7 + "|", *lines] if lines else ["No cell was attacked for longer yet."]


def _runs(points: Sequence[Point]) -> str:
    return "; ".join(f"{100 * accuracy:.2f}, {mse:.4f}" for accuracy, mse in points) or "–"


def long_training_table(rows: Iterable[dict[str, Any]], epochs: int, baseline: str, without: str) -> list[str]:
    """Runs trained for so many epochs: each run, and its MSE over the baseline's at equal accuracy.

    Of a design and the baseline the more accurate run stands as it is; the other is read at its accuracy, on the
    straight line to the run without a surrogate (of which ``without`` is the name), trained as long.
    """
    long = [row for row in rows if cell_of(row)["epochs"] == epochs]
    names = [design(cell_of(row)).removesuffix(f"; trained for {epochs} epochs") for row in long]
    points = [(row["accuracy_test"], row["mse_test"]) for row in long]
    anchors = {(name, row["cell"]["seed"]): at for name, row, at in zip(names, long, points, strict=True)}
    lines = []
    for name, row, point in sorted(zip(names, long, points, strict=True), key=lambda each: (each[0], each[2])):
        seed = row["cell"]["seed"]
        base, start = anchors.get((baseline, seed)), anchors.get((without, seed))
        ratio = "–"
        if base is not None and start is not None and name not in (baseline, without):
            accuracy = max(point[0], base[0])
            ours, theirs = (mse_at_accuracy([run, start], accuracy) for run in (point, base))
            ratio = f"{ours / theirs:.2f}× at {100 * accuracy:.2f} %" if ours and theirs else "–"
        given = strength(cell_of(row))
        lines.append(f"| {name} | {given} | {seed} | {100 * point[0]:.2f} | {point[1]:.4f} | {ratio} |")
    head = [f"| design | strength | seed | accuracy % | MSE | over {baseline} at equal accuracy |", "| --- " * 6 + "|"]
    return [*head, *lines] if lines else ["No cell was trained for longer yet."]
