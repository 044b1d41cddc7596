"""A cell of a study with its stored result, and what can be read off it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attention_cem.auditing.budgets import AUGMENTED
from attention_cem.data import known_data, lookup_data
from attention_cem.studies import Cell
from attention_cem.training.chance_alarm import NOTHING_LEARNED
from attention_cem.training.config_reading import config_hash

ABOVE_CHANCE = 1.2
"""An accuracy up to this multiple of a guess is that of a model that never learned."""
AUGMENTED_BUDGETS = ("compact", "standard", "thorough")
"""Whose audits train inverters on augmented images too; they did not always."""
KEPT_START = "kept its start"
"""Status of an attack that refined another's result and found nothing."""
_SAME = 1e-4
_SAID_AT_CHANCE = f"training: {NOTHING_LEARNED}"


@dataclass(frozen=True)
class Finished:
    """A cell of a study with its result; ``study`` is the one it was run for."""

    study: str
    cell: Cell
    result: dict[str, Any]

    @property
    def method(self) -> str:
        return self.cell.method

    @property
    def data(self) -> str:
        return self.cell.config.data.name

    @property
    def seed(self) -> int:
        return self.cell.config.train.seed

    @cached_property
    def config_hash(self) -> str:
        return config_hash(self.cell.config)

    @property
    def commit(self) -> str:
        return plain(self.result.get("commit") or "unknown")

    @property
    def device(self) -> str:
        return plain(self.result.get("device"))

    @property
    def budget(self) -> str:
        return plain(self.result.get("budget"))

    @property
    def attacks(self) -> dict[str, dict[str, Any]]:
        """By name; of older results, which do not say so, those that kept their start are told by their figures."""
        entries = {plain(name): entry for name, entry in (self.result.get("attacks") or {}).items()}
        return {
            name: {**entry, "status": KEPT_START} if _kept_start(name, entry, entries.get("inverter") or {}) else entry
            for name, entry in entries.items()
        }

    @property
    def not_settled(self) -> bool:
        """Whether its audit says that more effort will find more."""
        return any(str(text).startswith("not settled") for text in self.result.get("warnings") or ())

    @property
    def still_moving(self) -> float | None:
        """By which share the second half of the attack's effort still changed the figure, where the audit says so."""
        told = (
            re.search(r"^not settled: .* by ([+-][\d.]+) %", str(text)) for text in self.result.get("warnings") or ()
        )
        return next((float(found[1]) / 100 for found in told if found), None)

    @property
    def training_warnings(self) -> list[str]:
        """What the training itself found wrong."""
        begins = "training: "
        warnings = map(str, self.result.get("warnings") or ())
        return [text.removeprefix(begins) for text in warnings if text.startswith(begins)]

    @property
    def cost(self) -> dict[str, Any]:
        return self.result.get("cost") or {}

    @property
    def augmented(self) -> bool:
        """Whether some attack also trained on cropped and mirrored images, as whoever has the client can."""
        return any(str(name).endswith(AUGMENTED) for name in self.result.get("attacks") or {})

    @property
    def outdated(self) -> bool:
        """Whether its budget has attacks by now that it was not made with."""
        return self.budget in AUGMENTED_BUDGETS and not self.augmented

    @property
    def passed(self) -> bool:
        """Whether its audit stands on a passing receipt.

        One without augmented images does not: what they find more, no receipt of the others shows.
        """
        return self.result.get("receipt_ok") is True and self.augmented

    @property
    def best_epoch(self) -> int | None:
        """From which epoch the weights are; None of results that do not say."""
        return self.result.get("best_epoch")

    @property
    def never_learned(self) -> bool:
        """Whether it answers no better than at random: by its training's own word, else by its accuracy."""
        if any(str(text).startswith(_SAID_AT_CHANCE) for text in self.result.get("warnings") or ()):
            return True
        known = lookup_data(self.data).num_classes if self.data in known_data() else None
        classes = self.cell.config.data.options.get("num_classes", known)
        return classes is not None and self.result["accuracy"] <= ABOVE_CHANCE / classes

    def point(self, method: str | None = None) -> dict[str, Any]:
        """As `attention_cem.studies.compare` takes it; the method's name may be another."""
        return {
            "method": method or self.method,
            "data": self.data,
            "seed": self.seed,
            "lambda": self.cell.lambd,
            "sigma": self.cell.sigma,
            "settings": self.cell.settings,
            "accuracy": self.result["accuracy"],
            "mse": self.result["mse"],
            "receipt_ok": self.passed,
            "cost": self.cost,
        }


def plain(value: Any) -> str:
    """Text of a result as a page may show it: letters, digits and a few signs, not too long.

    >>> plain("NVIDIA H200"), plain("<b>|x")
    ('NVIDIA H200', '?b??x')
    """
    return re.sub(r"[^\w .,:+()/-]", "?", str(value))[:80]


def _kept_start(name: str, entry: Mapping[str, Any], inverter: Mapping[str, Any]) -> bool:
    """Whether an attack that starts from the inverter's result handed it back, up to rounding."""
    if entry.get("status") != "passed":
        return False
    if name == "gan_inverter" and entry.get("mse") and inverter.get("mse"):
        return abs(entry["mse"] / inverter["mse"] - 1) < _SAME
    return name == "optimisation_from_inverter" and str(entry.get("reason")).endswith(", 0 steps")
