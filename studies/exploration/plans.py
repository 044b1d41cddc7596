"""What the exploration runs: lists of cells, the most informative first."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from studies.exploration.cell import Cell

KMEANS_FLOOR = {"var_threshold": 1.0, "gamma": 1e-6}
BEYOND_LINEAR: dict[str, Any] = {"leak_features": 512}


def smoke() -> list[Cell]:
    """One of each kind, tiny: shows that everything runs."""
    tiny = {"epochs": 2, "attack_epochs": 1, "warmup_epochs": 1}
    return [
        Cell("noise", **tiny),
        Cell("kmeans", 5, **tiny),
        Cell("slot_mixture", 0.3, **tiny),
        Cell("logdet", 0.3, leak=0.5, **tiny),
        Cell("gated_adversary", 0.3, arl=0.3, **tiny),
        Cell("noise", leak=1.0, leak_features=64, blind=2, contrast=True, **tiny),
    ]


def leads() -> list[Cell]:
    """One seed: the linear attacker as a penalty, clients that do not see slow waves, and their pairs."""
    cells = [Cell("noise", leak=weight) for weight in (1.0, 2.0, 4.0)]
    cells += [Cell("noise", blind=waves) for waves in (1, 2, 3, 4)]
    cells += [Cell("noise", blind=2, contrast=True)]
    cells += [Cell("noise", leak=1.0, blind=2), Cell("one_gaussian", 0.1, blind=2), Cell("kmeans", 5, blind=2)]
    cells += [Cell("one_gaussian", 0.1, leak=1.0), Cell("noise", leak=1.0, leak_features=512)]
    cells += [Cell("noise", sigma=s) for s in (0.025, 0.1, 0.2, 0.3)]
    cells += [Cell("kmeans", 3), Cell("kmeans", 5), Cell("kmeans", 1.5, options=KMEANS_FLOOR)]
    cells += [Cell("noise", arl=0.3, blind=2), Cell("noise", arl=0.3, leak=1.0)]
    cells += [Cell("noise", leak=1.0, sigma=0.1), Cell("one_gaussian", 0.1, sigma=0.1), Cell("kmeans", 5, sigma=0.1)]
    cells += [Cell("one_gaussian", 0.1), Cell("kmeans", 0.5, options=KMEANS_FLOOR), Cell("noise", leak=0.5)]
    return cells


def seeds(*cells: Cell, of: tuple[int, ...] = (0, 1)) -> list[Cell]:
    """The cells with each seed."""
    return [replace(cell, seed=seed) for seed in of for cell in cells]


def curves() -> list[Cell]:
    """Two seeds: curves over σ and λ of every design."""
    return seeds(
        *(Cell("noise", leak=weight, **BEYOND_LINEAR) for weight in (0.25, 0.5, 1.0)),
        *(Cell("kmeans", lam) for lam in (3, 5, 10)),
        *(Cell("kmeans", lam, options=KMEANS_FLOOR) for lam in (0.5, 1.0, 1.5)),
        *(Cell("kmeans", lam, schedule="reference") for lam in (8, 16)),
        *(Cell("noise", sigma=s) for s in (0.025, 0.1, 0.2, 0.3)),
        *(Cell("one_gaussian", lam) for lam in (0.1, 0.2)),
        *(Cell("slot_mixture", lam) for lam in (0.1, 0.2)),
        Cell("slot_mixture", 0.05, leak=0.5, **BEYOND_LINEAR),
        *(Cell("noise", leak=weight) for weight in (0.5, 1.0)),
        *(Cell("logdet", lam) for lam in (0.1, 0.2)),
        *(Cell("gated_adversary", lam) for lam in (0.15, 0.3)),
    )


def blind() -> list[Cell]:
    """Clients that do not see slow waves, with and without a surrogate."""
    return [
        *seeds(Cell("noise", leak=0.5, blind=4, **BEYOND_LINEAR), Cell("kmeans", 3, blind=4)),
        *seeds(Cell("noise", blind=4), of=(1,)),
        Cell("slot_mixture", 0.1, blind=4),
        Cell("noise", blind=6),
        Cell("noise", blind=8),
    ]


def adversaries() -> list[Cell]:
    """Two seeds: every design together with an adversarial inverter."""
    designs = (
        Cell("noise"),
        Cell("noise", leak=0.5, **BEYOND_LINEAR),
        Cell("kmeans", 3),
        Cell("slot_mixture", 0.1),
        Cell("gated_adversary", 0.15),
        Cell("logdet", 0.1),
        Cell("noise", blind=4),
    )
    return seeds(*(replace(cell, arl=0.3) for cell in designs))


def modes() -> list[Cell]:
    """Classes that are five classes each: CIFAR-100 with its coarse labels, one slot against eight."""
    return seeds(
        *(
            Cell("slot_mixture", lam, data="cifar100_coarse", options={"num_slots": slots})
            for slots in (1, 8)
            for lam in (0.05, 0.15)
        )
    )


def variations() -> list[Cell]:
    """One seed: more random features, more slots, one cluster, more weight against the adversary."""
    return [
        Cell("noise", leak=0.5, leak_features=2048),
        Cell("slot_mixture", 0.1, options={"num_slots": 8}),
        Cell("kmeans", 5, options={"num_clusters": 1}),
    ]


def second() -> list[Cell]:
    """Everything above in the order of its weight, two seeds before any luxury."""
    return [*curves(), *blind(), *adversaries(), *variations()]


def solved() -> list[Cell]:
    """The attacker beyond linear, solved at every step."""
    return [
        *seeds(*(Cell("noise", leak=weight, leak_features=512) for weight in (0.3, 0.6))),
        Cell("noise", leak=1.0, leak_features=512, seed=1),
        Cell("noise", leak=0.5, leak_features=512, blind=4),
        Cell("noise", arl=0.3, seed=0),
        Cell("noise", arl=0.3, seed=1),
        Cell("slot_mixture", 0.1, arl=0.3),
        Cell("kmeans", 3, arl=0.3),
        Cell("noise", arl=0.3, blind=4),
    ]


def finishing() -> list[Cell]:
    """What is missing: long attacks, an attacker that follows the client, one of two stages, pairs with ARL."""
    follower = Cell("noise", leak=0.6, leak_features=512, leak_followed=44)
    near = replace(follower, leak_places=1)
    designs = (
        replace(follower, leak=0.5),
        Cell("kmeans", 3),
        Cell("slot_mixture", 0.1),
        Cell("gated_adversary", 0.15),
        Cell("logdet", 0.1),
    )
    attacked_for_longer = (
        follower,
        Cell("kmeans", 3),
        Cell("noise", arl=0.3),
        near,
        replace(follower, leak=0.5, blind=4),
        replace(follower, leak=1.0),
    )
    return [
        *(replace(cell, attack_epochs=60) for cell in attacked_for_longer),
        *seeds(*(replace(cell, leak=weight) for cell in (follower, near) for weight in (0.6, 1.0))),
        *seeds(*(replace(cell, arl=0.3) for cell in designs)),
        replace(follower, leak_target=16),
        replace(follower, leak_target=8),
        *(replace(cell, leak=0.3) for cell in (follower, near)),
        *(replace(cell, leak=0.5, blind=4) for cell in (near, replace(follower, seed=1))),
        replace(follower, leak=0.5, blind=4, arl=0.3),
        *(replace(cell, leak=0.3, seed=1) for cell in (follower, near)),
        replace(near, leak=0.5, arl=0.3),
        Cell("slot_mixture", 0.03, leak=0.5, leak_features=512, leak_followed=44),
    ]


def untested() -> list[Cell]:
    """Long training, shaped noise, more slots and a fixed temperature, an attacker that follows more closely."""
    follower = Cell("noise", leak=0.5, leak_features=512, leak_followed=10)
    long = (Cell("noise"), Cell("kmeans", 5), Cell("slot_mixture", 0.2), replace(follower, blind=4))
    return [
        *(replace(cell, epochs=160) for cell in long),
        *seeds(*(Cell("slot_mixture", 0.1, options=given) for given in ({"num_slots": 8}, {"objective": "frozen"}))),
        *seeds(*(Cell("noise", sigma=sigma, shaped=True) for sigma in (0.05, 0.1, 0.2))),
        *seeds(*(replace(follower, leak=weight) for weight in (0.6, 1.0))),
    ]


def closing() -> list[Cell]:
    """Pairs with ARL that are missing, a second strength of each, two seeds; the second seed of long training."""
    pairs = (
        Cell("kmeans", 16, schedule="reference"),
        Cell("noise", sigma=0.1),
        Cell("kmeans", 1),
        Cell("kmeans", 8, schedule="reference"),
        Cell("slot_mixture", 0.05),
        Cell("gated_adversary", 0.07),
        Cell("logdet", 0.2),
        Cell("noise", leak=0.25, leak_features=512, leak_followed=44),
    )
    follower = Cell("noise", leak=0.5, leak_features=512, leak_followed=5, blind=4)
    long = (Cell("noise"), Cell("kmeans", 5), Cell("slot_mixture", 0.2), follower)
    return [
        *(replace(cell, epochs=160, seed=1) for cell in long),
        *seeds(*(replace(cell, arl=0.3) for cell in pairs)),
    ]


PLANS: dict[str, Callable[[], list[Cell]]] = {
    "smoke": smoke,
    "leads": leads,
    "curves": curves,
    "adversaries": adversaries,
    "blind": blind,
    "modes": modes,
    "variations": variations,
    "second": second,
    "solved": solved,
    "finishing": finishing,
    "untested": untested,
    "closing": closing,
}
