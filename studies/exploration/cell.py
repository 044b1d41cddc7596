"""One training and its attack, as plain data."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One training and its attack.

    Args:
        method: the surrogate; ``noise`` for none.
        lambd: its weight. schedule: ``constant`` after a ramp, or ``reference`` (tied to 1/lr).
        sigma: of the noise at the cut; shaped: it varies as z does within its classes.
        leak: weight of LinearLeakage; leak_features: its random features; leak_target: pixels a side of the images it
            aims at, 0 for all; leak_places: places of z a side that correct its guess (LocalLeakage), 0 for none;
            leak_followed: it follows the client, with an inverse of up to so many steps ago; 0: solved at every step.
        arl: weight of an adversarial inverter.
        blind: waves a side that the client does not see (`BlindInput`); contrast: its option.
        options: further arguments of the surrogate.
    """

    method: str
    lambd: float = 0.0
    sigma: float = 0.025
    shaped: bool = False
    schedule: str = "constant"
    leak: float = 0.0
    leak_features: int = 0
    leak_target: int = 0
    leak_places: int = 0
    leak_followed: int = 0
    arl: float = 0.0
    blind: int = 0
    contrast: bool = False
    seed: int = 0
    data: str = "cifar10"
    epochs: int = 40
    attack_epochs: int = 15
    warmup_epochs: int = 3
    learning_rate: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A file name; settings at their defaults do not enter, so that new ones leave old names alone."""
        given = {key: value for key, value in asdict(self).items() if value != default_of(key)}
        text = json.dumps(given, sort_keys=True)
        return f"{self.data}-{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def default_of(name: str) -> Any:
    """The default of a cell's setting."""
    if name == "options":
        return {}
    return next(each.default for each in fields(Cell) if each.name == name)
