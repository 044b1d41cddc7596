"""Which attacks an audit runs: five named budgets, or any list of one's own. Weakest attacks come first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from attention_cem.attacks import (
    Attack,
    Challenge,
    ClassMeanAttack,
    GanInverterAttack,
    InverterAttack,
    NearestNeighbourAttack,
    OptimisationAttack,
    RidgeAttack,
    TrainingPlan,
)
from attention_cem.budget_names import BUDGETS

SHORT_INVERTER = "inverter_short"
"""The quick budget's inverter by name; a thorough audit runs it too, to say what a quick one would have missed."""
SCREENING_NOTE = (
    "a screening audit: one inverter of fixed effort, to choose among many runs; audit the chosen ones with a standard "
    "or thorough budget"
)
"""Stands among the warnings of every screening audit."""
AUGMENTED = "_augmented"
"""Ends the names of inverters that also train on cropped and mirrored images, of which a white-box attacker makes its
own features. Where little leaks, one that does not learns its own images by heart and finds an eighth less:
``python -m benchmarks.augmented``.
"""
_REFERENCE = f"inverter{AUGMENTED}"
_FILE_NAME = re.compile(r"[^\s./\\\0][^\n/\\\0]{0,49}")
_SMALL = TrainingPlan(epochs=24, batch_size=48, lr=2e-3)
"""Of the compact budget: small batches, whose many steps take few epochs on a CPU."""
_FROM_ADVERSARY = {"compact": _SMALL, "standard": TrainingPlan(epochs=50), "thorough": TrainingPlan(epochs=100)}
"""How long the defender's own adversary is trained on; other budgets leave it out."""


@dataclass(frozen=True)
class Budget:
    """What an audit spends.

    Args:
        name: goes into the record.
        attacks: names and attacks, in the order they run.
        may_settle: whether it is thorough enough to call a figure settled.
        calibration_images: attacker images used for the calibration clients, at most; an attack that works with few
            works with more.
        bound_images: images used for the bounds, at most; 0 computes none.
        fisher_images: images used for dFIL, at most.
        membership_epochs: training of the membership attacks; 0 runs none.
        note: a warning that goes into every record made with it.
    """

    name: str
    attacks: tuple[tuple[str, Attack], ...]
    may_settle: bool = False
    calibration_images: int = 10_000
    bound_images: int = 10_000
    fisher_images: int = 256
    membership_epochs: int = 200
    note: str = ""

    def __post_init__(self) -> None:
        names = [name for name, _ in self.attacks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"a budget needs attacks with distinct names, got {names}")
        # Names become those of files: what cannot be written must not be known only after the attack.
        if odd := [name for name in names if not _FILE_NAME.fullmatch(name)]:
            raise ValueError(f"names of attacks must be 1 to 50 characters without slashes, no dot first, got {odd}")
        numbers = self.bound_images, self.fisher_images, self.membership_epochs
        if min(numbers) < 0:
            raise ValueError(f"bound_images, fisher_images and membership_epochs must be 0 or more, got {numbers}")


def named_budget(name: str, challenge: Challenge, *, compiled: bool = False) -> Budget:
    """The budget of that name, fitted to the challenge: white-box attacks only where it is white-box.

    ``compiled``: inverters are compiled where they train on a CUDA device.

    Raises:
        ValueError: an unknown name.
    """
    check_budget_name(name)
    makers = (_quick, _screening, _compact, _standard, _thorough)
    budget = dict(zip(BUDGETS, makers, strict=True))[name]()
    attacks = budget.attacks
    adversary = challenge.defender_adversary()
    if adversary is not None and name in _FROM_ADVERSARY:
        plan = _FROM_ADVERSARY[name]
        # Its size is for the calibration, which trains the same network from a random start.
        tuned = InverterAttack(plan, adversary.width, adversary.blocks, augment=True, start="adversary")
        attacks = (*attacks, ("inverter_from_adversary", tuned))
    if not challenge.white_box:
        attacks = tuple(_black_box(attacks).items())
    if compiled:
        attacks = tuple((each, _compiled(attack)) for each, attack in attacks)
    return replace(budget, attacks=attacks)


def _black_box(attacks: Iterable[tuple[str, Attack]]) -> dict[str, Attack]:
    """Those that need no client: without it there are no features of other images than those stored.

    Of an inverter with augmented images and one without them the former stays, without them.
    """
    kept: dict[str, Attack] = {}
    for name, attack in attacks:
        if isinstance(attack, InverterAttack):
            attack = replace(attack, augment=False)
        elif isinstance(attack, GanInverterAttack):
            attack = replace(attack, augment=False, start_from=attack.start_from.removesuffix(AUGMENTED))
        if not attack.needs_white_box:
            kept[name.removesuffix(AUGMENTED)] = attack
    return kept


def _compiled(attack: Attack) -> Attack:
    return replace(attack, compile=True) if isinstance(attack, InverterAttack) else attack


def check_budget_name(name: str) -> None:
    """Refuse what no budget is called."""
    if name not in BUDGETS:
        raise ValueError(f"unknown budget {name!r}; expected one of {', '.join(BUDGETS)}")


def _baselines() -> tuple[tuple[str, Attack], ...]:
    """Nothing here is trained, so that nothing here can be under-trained."""
    return ("class_mean", ClassMeanAttack()), ("nearest_neighbour", NearestNeighbourAttack()), ("ridge", RidgeAttack())


def _short_inverter() -> InverterAttack:
    """A tenth of the reference inverter's work: minutes on a CPU, and seldom enough for a passing receipt."""
    return InverterAttack(TrainingPlan(epochs=10), width=32, blocks=2)


def _quick() -> Budget:
    return Budget(
        "quick",
        (*_baselines(), (SHORT_INVERTER, _short_inverter())),
        calibration_images=2000,
        bound_images=2000,
        fisher_images=32,
        membership_epochs=50,
    )


def _screening() -> Budget:
    """The reference inverter at full width, the same fixed effort for every cell of a grid.

    It takes 15 % of the steps of the standard schedule: fewer epochs, and batches twice as large. It is not
    probed for convergence, so that its receipt never passes: a screening audit ranks, it proves nothing. Without
    augmented images, it overrates clients that show little beside such as show much.
    """
    return Budget(
        "screening",
        (*_baselines(), ("inverter", InverterAttack(TrainingPlan(epochs=15, batch_size=512, probe=False)))),
        bound_images=0,
        fisher_images=0,
        membership_epochs=0,
        note=SCREENING_NOTE,
    )


def _compact() -> Budget:
    """One small inverter, trained until its receipt can pass: what a CPU has time for, with some thousand images."""
    return Budget(
        "compact",
        (*_baselines(), (f"inverter_small{AUGMENTED}", InverterAttack(_SMALL, width=32, blocks=2, augment=True))),
        bound_images=2000,
        fisher_images=32,
        membership_epochs=50,
    )


def _standard() -> Budget:
    reference = TrainingPlan(epochs=50)
    return Budget(
        "standard",
        (
            *_baselines(),
            ("inverter", InverterAttack(reference)),
            (_REFERENCE, InverterAttack(reference, augment=True)),
            (f"inverter_large{AUGMENTED}", InverterAttack(reference, width=128, blocks=12, augment=True)),
            ("gan_inverter", GanInverterAttack(reference, epochs=20, augment=True, start_from=_REFERENCE)),
            ("optimisation", OptimisationAttack(steps=400, images=1000)),
            ("optimisation_from_inverter", OptimisationAttack(steps=200, images=1000, start_from=_REFERENCE)),
        ),
    )


def _thorough() -> Budget:
    long = TrainingPlan(epochs=100)
    search = OptimisationAttack(steps=1000, noise_draws=4, restarts=4, images=1000)
    return Budget(
        "thorough",
        (
            *_baselines(),
            (SHORT_INVERTER, _short_inverter()),
            ("inverter", InverterAttack(long)),
            (_REFERENCE, InverterAttack(long, restarts=2, augment=True)),
            (f"inverter_large{AUGMENTED}", InverterAttack(long, width=128, blocks=12, augment=True)),
            (f"inverter_wide{AUGMENTED}", InverterAttack(TrainingPlan(epochs=150), width=256, blocks=8, augment=True)),
            ("gan_inverter", GanInverterAttack(long, epochs=50, augment=True, start_from=_REFERENCE)),
            ("optimisation", search),
            ("optimisation_from_inverter", replace(search, start_from=_REFERENCE)),
        ),
        may_settle=True,
    )
