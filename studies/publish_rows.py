"""Rows of the tables: the results of one setting, mean and deviation over its seeds, with where they come from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from attention_cem.budget_names import BUDGETS
from studies.publish_finished import KEPT_START, Finished, plain
from studies.publish_reading import Experiment

FIRST_ATTACKS = (
    "inverter_small",
    "inverter_small_augmented",
    "inverter",
    "inverter_large",
    "inverter_augmented",
    "inverter_large_augmented",
    "inverter_wide_augmented",
    "inverter_from_adversary",
    "gan_inverter",
    "optimisation",
    "optimisation_from_inverter",
)
"""Order of the columns; other attacks follow."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds; the deviation is None with one seed.

    >>> Spread.of([0.1, 0.2]).text(2), Spread.of([0.1234]).text(4)
    ('0.15 ± 0.07', '0.1234')
    """

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = list(values)
        return cls(fmean(known), stdev(known) if len(known) > 1 else None)

    def text(self, digits: int, scale: float = 1.0) -> str:
        told = f"{scale * self.mean:.{digits}f}"
        return told if self.std is None else f"{told} ± {scale * self.std:.{digits}f}"


def spread_of_known(values: Iterable[Any]) -> Spread | None:
    """Of the finite numbers among the values; None where there are none.

    >>> spread_of_known([None, float("inf")]) is None, spread_of_known([None, 0.5]).mean
    (True, 0.5)
    """
    known = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return Spread.of(known) if known else None


@dataclass(frozen=True)
class Row:
    """One setting of a method on one data set."""

    method: str
    data: str
    sigma: float | None
    lambd: float
    members: tuple[Finished, ...]
    accuracy: Spread
    mse: Spread
    ssim: Spread | None

    @property
    def seeds(self) -> int:
        return len(self.members)

    @property
    def study(self) -> str:
        return ", ".join(dict.fromkeys(each.study for each in self.members))

    @property
    def budgets(self) -> tuple[str, ...]:
        return tuple(sorted({each.budget for each in self.members}))

    @property
    def passed(self) -> int:
        """How many of the seeds have an audit that stands on passing receipts."""
        return sum(each.passed for each in self.members)

    @property
    def never_learned(self) -> int:
        """How many of the seeds answer no better than at random."""
        return sum(each.never_learned for each in self.members)

    @property
    def worst_attacks(self) -> str:
        return ", ".join(sorted({plain(each.result.get("attack")) for each in self.members}))

    @property
    def strength(self) -> str:
        """λ of the surrogate; the weight of the closed-form attacker where there is one, and both where both are."""
        return strength_of(self.members[0])

    @property
    def hidden(self) -> dict[str, Spread]:
        """By band of waves, the share of its floor that the error of the worst attack is; empty of older results."""
        found: dict[str, list[float]] = {}
        for each in self.members:
            parts, floors = each.result.get("waves") or {}, each.result.get("floor_waves") or {}
            for band in (band for band in parts if floors.get(band) and parts[band] is not None):
                found.setdefault(plain(band), []).append(parts[band] / floors[band])
        return {band: Spread.of(shares) for band, shares in found.items()}

    @property
    def seeds_with_waves(self) -> int:
        """How many seeds `hidden` is of."""
        return sum(bool(each.result.get("waves")) for each in self.members)

    @property
    def shutoff(self) -> Spread | None:
        return spread_of_known(each.result.get("shutoff_share") for each in self.members)

    def attack(self, name: str, figure: str = "mse") -> Spread | None:
        entries = [each.attacks.get(name) or {} for each in self.members]
        return spread_of_known(entry.get(figure) for entry in entries)

    def attack_proven(self, name: str) -> bool:
        """Whether the attack's own receipt passes in every seed that has it; one that says nothing does not pass."""
        return all(each.attacks[name].get("status") == "passed" for each in self.members if each.attacks.get(name))

    def attack_kept_start(self, name: str) -> bool:
        """Whether the attack, in every seed whose receipt does not pass, only handed back what it started from."""
        entries = [each.attacks[name] for each in self.members if each.attacks.get(name)]
        return all(entry.get("status") in ("passed", KEPT_START) for entry in entries)

    @property
    def not_settled(self) -> list[int]:
        """Seeds whose audit says that more effort will find more."""
        return [each.seed for each in self.members if each.not_settled]

    def cost(self, figure: str) -> Spread | None:
        return spread_of_known(each.cost.get(figure) for each in self.members)

    @property
    def source(self) -> str:
        """Study, configuration hashes and commits, as a table's cell."""
        hashes = " ".join(f"`{each.config_hash[:8]}`" for each in self.members)
        commits = " ".join(
            f"`{commit}`" for commit in dict.fromkeys(short_commit(each.commit) for each in self.members)
        )
        return f"{self.study} · {hashes} · {commits}"


def strength_of(each: Finished) -> str:
    """See `Row.strength`."""
    lambd, weight = each.cell.lambd, weight_of(each)
    if not weight:
        return f"{lambd:g}"
    return f"weight {weight:g}" if not lambd else f"{lambd:g}, weight {weight:g}"


def weight_of(each: Finished) -> float:
    """Weight of the closed-form attacker; 0 without one."""
    return float(each.cell.config.defence.get("linear_leakage", {}).get("weight", 0.0))


def attacked_hardest(rows: Sequence[Row]) -> list[Row]:
    """Without rows of which some run, the same configuration, stands in another row under stronger attacks."""

    def strength(row: Row) -> int:
        return min(map(BUDGETS.index, row.budgets))

    def runs(row: Row) -> set[str]:
        return {each.config_hash for each in row.members}

    return [row for row in rows if not any(strength(row) < strength(each) and runs(row) & runs(each) for each in rows)]


def rows_of(experiment: Experiment, data: str) -> list[Row]:
    """One row per method and setting, in the order of the study file."""
    groups: dict[str, list[Finished]] = {}
    for each in experiment.finished:
        if each.data == data:
            own = {name: value for name, value in each.cell.settings.items() if name != "train.seed"}
            setting = repr((each.method, each.cell.lambd, each.cell.sigma, sorted(own.items())))
            groups.setdefault(setting, []).append(each)
    return [row_of(group) for group in groups.values()]


def attack_names(rows: Sequence[Row]) -> list[str]:
    """Every attack that some row has, the well-known ones first."""
    present = dict.fromkeys(name for row in rows for each in row.members for name in each.attacks)
    return [name for name in FIRST_ATTACKS if name in present] + [n for n in present if n not in FIRST_ATTACKS]


def row_of(group: Sequence[Finished]) -> Row:
    """The row of results that have the setting in common."""
    first, ordered = group[0], tuple(sorted(group, key=lambda each: each.seed))
    return Row(
        method=first.method,
        data=first.data,
        sigma=first.cell.sigma,
        lambd=first.cell.lambd,
        members=ordered,
        accuracy=Spread.of(each.result["accuracy"] for each in ordered),
        mse=Spread.of(each.result["mse"] for each in ordered),
        ssim=spread_of_known(each.result.get("ssim") for each in ordered),
    )


def short_commit(commit: str) -> str:
    """A commit in a few characters.

    >>> short_commit("0123456789abcdef+changes")
    '012345678+changes'
    """
    name, *changes = commit.split("+")
    return "+".join([name[:9], *changes])
