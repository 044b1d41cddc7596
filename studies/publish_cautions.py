"""What keeps a comparison from being read as more than it is: one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attention_cem.studies.curves import shares_at_accuracy
from attention_cem.studies.verdicts import ENOUGH_SEEDS
from attention_cem.training.config_reading import differences
from studies.publish_finished import Finished
from studies.publish_matching import AtAccuracy, Match

Members = Mapping[str, Sequence[Finished]]
"""Results by method, the runs without a surrogate that each curve ends at included."""
MUCH_UNDEFENDED = 0.25
_FAR_APART = 0.03


def cautions(
    found: Match, sides: Sequence[tuple[str, Members]], undefended: Sequence[float], runs: Sequence[Finished]
) -> list[str]:
    """Every caution of a comparison.

    Args:
        found: the comparison.
        sides: both names, and their results by method.
        undefended: of both sides, the share that the run without a surrogate has.
        runs: that the two curves are made of, each once.
    """
    (name_a, of_a), (name_b, of_b) = sides
    return [
        *_never_learned(runs),
        *_without_augmented(runs),
        *_without_receipt(runs),
        *_few_seeds(found),
        *(f"seed {seed} is left out: {reason}" for seed, reason in found.left_out.items()),
        *_at_least(found, name_a, name_b),
        *_mostly_undefended([name for name, _ in sides], undefended),
        *_far_apart(found, sides),
        *_trained_differently(of_a, of_b),
    ]


def _never_learned(runs: Sequence[Finished]) -> list[str]:
    """They count as every other: who leaves a seed out because of its figures can show anything."""
    never = sum(each.never_learned for each in runs)
    return [f"{never} of {len(runs)} runs never learned (accuracy at chance)"] if never else []


def _without_augmented(runs: Sequence[Finished]) -> list[str]:
    plain = sum(not each.augmented for each in runs)
    told = f"{plain} of {len(runs)} runs were attacked without augmented images, which find more of ours"
    return [told] if plain else []


def _without_receipt(runs: Sequence[Finished]) -> list[str]:
    unsure = sum(not each.passed for each in runs)
    told = f"{unsure} of {len(runs)} runs have no passing receipt: their MSE may be lower than measured"
    return [told] if unsure else []


def _few_seeds(found: Match) -> list[str]:
    seeds = len(found.seeds)
    told = f"{seeds} seed{'s' * (seeds != 1)}: at least {ENOUGH_SEEDS} are needed for a claim"
    return [told] if seeds < ENOUGH_SEEDS else []


def _at_least(found: Match, name_a: str, name_b: str) -> list[str]:
    """Said where the ratio is a lower bound."""
    if not found.at_least:
        return []
    told = f"in some seeds every efficient run of {name_a} is more accurate than the accuracy at which {name_b} is read"
    return [f"{told}: its least accurate one counts, and the ratio is a lower bound"]


def _mostly_undefended(names: Iterable[str], undefended: Iterable[float]) -> list[str]:
    return [
        f"{name} is read as a mixture that sends {100 * share:.0f} % of the images through the run without a surrogate"
        for name, share in zip(names, undefended, strict=True)
        if share > MUCH_UNDEFENDED
    ]


def _far_apart(found: Match, sides: Sequence[tuple[str, Members]]) -> list[str]:
    """Sides of which a seed's MSE is read between runs that lie far from each other in accuracy."""
    told = []
    for name, members in sides:
        widest = 0.0
        for read in read_from(found.decisive, members, or_above=True):
            ends = [each.result["accuracy"] for each, share in read if share > 0]
            widest = max(widest, max(ends) - min(ends))
        if widest > _FAR_APART:
            told.append(f"{name} is read between runs up to {100 * widest:.1f} points of accuracy apart")
    return told


def runs_of(members: Members) -> list[Finished]:
    """Every run once, though several methods may end at it."""
    return list({(each.method, each.cell.id): each for group in members.values() for each in group}.values())


def read_from(at: AtAccuracy, members: Members, *, or_above: bool) -> list[list[tuple[Finished, float]]]:
    """Seed by seed, the runs that a side's MSE at an accuracy was read from, and the share of each."""
    # Own runs last, so that they win: a run without a surrogate that has the very same figures adds nothing.
    own_last = sorted(runs_of(members), key=lambda each: each.method in members)
    read = []
    for seed in at.seeds:
        of = {(each.result["accuracy"], each.result["mse"]): each for each in own_last if each.seed == seed}
        shares = shares_at_accuracy(of, at.matched.accuracy, or_above=or_above)
        read.append([(of[point], share) for point, share in shares])
    return read


def _trained_differently(of_a: Members, of_b: Members) -> list[str]:
    """Settings of data, model and training (not of defence, surrogate or seed) in which the two sides differ."""
    told: dict[str, None] = {}
    for one in (group[0] for group in of_a.values()):
        for other in (group[0] for group in of_b.values()):
            for line in differences(one.cell.config, other.cell.config):
                if line.startswith(("train.", "data.", "model.")) and not line.startswith("train.seed:"):
                    told[f"{one.method} and {other.method} are trained differently: {line}"] = None
    return list(told)
