"""What the exploration runs: lists of cells, the most informative first."""

from collections.abc import Callable

from studies.exploration import Cell


def smoke() -> list[Cell]:
    """One of each kind, tiny: shows that everything runs."""
    return [
        Cell("noise", epochs=2, attack_epochs=1),
        Cell("kmeans", 5, epochs=2, attack_epochs=1, warmup_epochs=1),
        Cell("slot_mixture", 0.3, epochs=2, attack_epochs=1, warmup_epochs=1),
        Cell("logdet", 0.3, epochs=2, attack_epochs=1, warmup_epochs=1),
        Cell("gated_adversary", 0.3, epochs=2, attack_epochs=1, warmup_epochs=1, arl=0.3),
        Cell("leakage", 1.0, epochs=2, attack_epochs=1, warmup_epochs=1),
    ]


def main() -> list[Cell]:
    """Curves over λ at σ .025 for every design, two seeds; noise alone over σ."""
    cells = []
    for seed in (0, 1):
        cells += [Cell("noise", sigma=s, seed=seed) for s in (0.025, 0.1, 0.2, 0.3)]
        cells += [Cell("kmeans", lam, seed=seed, schedule="reference") for lam in (16, 32)]
        cells += [Cell("kmeans", lam, seed=seed) for lam in (5, 10, 15)]
        cells += [Cell("one_gaussian", lam, seed=seed) for lam in (0.2, 0.4)]
        cells += [Cell("slot_mixture", lam, seed=seed) for lam in (0.1, 0.2, 0.4)]
        cells += [Cell("logdet", lam, seed=seed) for lam in (0.2, 0.4, 0.7)]
        cells += [Cell("gated_adversary", lam, seed=seed) for lam in (0.15, 0.3)]
        cells += [Cell("leakage", lam, seed=seed) for lam in (0.3, 1.0, 3.0)]
    return cells


def sound() -> list[Cell]:
    """The sound designs over λ, one seed."""
    cells = [Cell("one_gaussian", lam) for lam in (0.1, 0.2, 0.4)]
    cells += [Cell("logdet", lam) for lam in (0.2, 0.4, 0.7)]
    cells += [Cell("slot_mixture", 0.1), Cell("slot_mixture", 0.2)]
    cells += [Cell("noise", arl=0.3), Cell("one_gaussian", 0.1, arl=0.3), Cell("kmeans", 3, arl=0.3)]
    cells += [Cell("logdet", 0.2, arl=0.3), Cell("gated_adversary", 0.15), Cell("leakage", 0.5)]
    cells += [Cell("one_gaussian", lam, options={"variance_floor": 0.01}) for lam in (0.5, 1.0)]
    cells += [Cell("logdet", 0.4, sigma=0.1), Cell("one_gaussian", 0.2, sigma=0.1)]
    cells += [Cell("kmeans", 3), Cell("leakage", 2.0), Cell("gated_adversary", 0.3)]
    cells += [Cell("noise"), Cell("noise", sigma=0.1), Cell("noise", sigma=0.2)]
    return cells


PLANS: dict[str, Callable[[], list[Cell]]] = {"smoke": smoke, "main": main, "sound": sound}
