"""Writes results/exploration.md and its plot from the result files: no number there is typed by hand.

python -m studies.exploration.report
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from attention_cem.studies import mse_at_accuracy
from attention_cem.studies.curves import Point
from studies.exploration.designs import EPOCHS, TITLES, cell_of, curve_name, design, strength
from studies.exploration.left_out import left_out, left_out_lines
from studies.exploration.longer import ATTACK_EPOCHS, long_training_table, longer_table

RESULTS, PAGE = Path("results/exploration"), Path("results/exploration.md")
FIGURE = Path("results/figures/exploration.svg")
MATCHED = (0.85, 0.865)
WIDEST_GAP = 0.03
MODES_GAP = 0.08  # two strengths a design, far apart
LONG_TRAINING = 160
BASELINE = "k-means CEM"
SHOWN = (
    "noise alone",
    "k-means CEM, λ tied to 1/lr (as published)",
    BASELINE,
    "k-means CEM, floor σ²",
    "slot mixture",
    "closed-form linear attacker",
    "closed-form attacker with 512 random features",
)


def curves(rows: Iterable[dict[str, Any]]) -> dict[str, dict[int, list[Point]]]:
    """Of every design, per seed, its (accuracy, MSE) points; repeats of one cell are averaged.

    Strength zero lies on every curve: the same training without the surrogate, at the same σ.
    """
    cells: dict[tuple[str, int, str], list[Point]] = defaultdict(list)
    starts: dict[str, str] = {}
    for row in rows:
        cell = cell_of(row)
        cells[(curve_name(cell), cell["seed"], strength(cell))].append((row["accuracy_test"], row["mse_test"]))
        without = {"method": "noise", "lambd": 0.0, "leak": 0.0, "options": {}, "schedule": "constant", "sigma": 0.025}
        starts[curve_name(cell)] = curve_name(cell | without) if cell["sigma"] == 0.025 else curve_name(cell)
    found: dict[str, dict[int, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for (name, seed, _), points in cells.items():
        found[name][seed].append((mean(p[0] for p in points), mean(p[1] for p in points)))
    for name, start in starts.items():
        if start != name:
            for seed, points in found[name].items():
                points += [p for p in found.get(start, {}).get(seed, []) if p == max(found[start][seed])]
    return found


def mse_by_seed(by_seed: Mapping[int, Sequence[Point]], accuracy: float) -> dict[int, float]:
    """MSE at an accuracy of every seed whose curve can be read there."""
    read = {seed: mse_at_accuracy(points, accuracy, widest_gap=WIDEST_GAP) for seed, points in by_seed.items()}
    return {seed: mse for seed, mse in read.items() if mse is not None}


def matched_table(found: dict[str, dict[int, list[Point]]], baseline: str) -> list[str]:
    """MSE of each curve at the matched accuracies, mean over the seeds that reach them, and its ratio to a baseline."""
    head = " | ".join(f"MSE at {100 * a:.1f} % | seeds" for a in MATCHED)
    lines = [f"| design | {head} |", "| --- " * (1 + 2 * len(MATCHED)) + "|"]
    rows = []
    for name, by_seed in found.items():
        at = {accuracy: mse_by_seed(by_seed, accuracy) for accuracy in MATCHED}
        if any(at.values()):
            rows.append((name, at))
    for name, at in sorted(rows, key=lambda row: [-mean(row[1][a].values() or [0]) for a in MATCHED]):
        fields = []
        for accuracy in MATCHED:
            values, seeds = at[accuracy], sorted(at[accuracy])
            bases = mse_by_seed(found[baseline], accuracy)
            ratios = [values[s] / bases[s] for s in seeds if s in bases]
            ratio = f" ({mean(ratios):.2f}×)" if ratios and name != baseline else ""
            fields.append(f"{mean(values.values()):.4f}{ratio} | {len(seeds)}" if values else "– | ")
        lines.append(f"| {name} | {' | '.join(fields)} |")
    return lines


def full_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Every cell, seeds side by side."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cell = cell_of(row)
        longer = "" if cell["attack_epochs"] == ATTACK_EPOCHS else f", attacked for {cell['attack_epochs']} epochs"
        groups[(cell["data"], design(cell) + longer, strength(cell))].append(row)
    lines = ["| data | design | strength | accuracy %, MSE of each run (seed) | validation, mean |", "| --- " * 5 + "|"]
    for (data, title, given), members in sorted(groups.items()):
        runs = "; ".join(
            f"{100 * row['accuracy_test']:.2f}, {row['mse_test']:.4f}{_likeness(row)} ({row['cell']['seed']})"
            for row in sorted(members, key=lambda row: row["cell"]["seed"])
        )
        held = (
            f"{100 * mean(row['accuracy_validation'] for row in members):.2f}, "
            f"{mean(row['mse_validation'] for row in members):.4f}"
        )
        lines.append(f"| {data} | {title} | {given} | {runs} | {held} |")
    return lines


def _likeness(row: dict[str, Any]) -> str:
    """SSIM, which early runs did not measure."""
    return f", SSIM {row['ssim_test']:.3f}" if "ssim_test" in row else ""


def repeats_line(rows: Iterable[dict[str, Any]]) -> str:
    """How far runs of one and the same cell lie apart, in words."""
    repeats: dict[str, list[Point]] = defaultdict(list)
    for row in rows:
        repeats[json.dumps(cell_of(row), sort_keys=True)].append((row["accuracy_test"], row["mse_test"]))
    several = [points for points in repeats.values() if len(points) > 1]
    if not several:
        return "No cell was run twice."
    apart = [[max(values) - min(values) for values in zip(*points, strict=True)] for points in several]
    accuracy, mse = (max(values) for values in zip(*apart, strict=True))
    return f"{len(several)} cells were run twice or more: up to {100 * accuracy:.1f} points and {mse:.4f} MSE apart."


def modes_lines(found: dict[str, dict[int, list[Point]]]) -> list[str]:
    """One slot against eight where classes have several kinds of images: the ratio at every accuracy both reach."""
    one, eight = (next((c for n, c in found.items() if f"num slots {s}" in n), {}) for s in (1, 8))
    lines = []
    for seed in sorted(set(one) & set(eight)):
        for points, others, ours in ((eight[seed], one[seed], 1), (one[seed], eight[seed], -1)):
            for accuracy, mse in sorted(points):
                other = mse_at_accuracy(others, accuracy, widest_gap=MODES_GAP)
                if other is not None:
                    ratio = mse / other if ours == 1 else other / mse
                    lines.append(f"- seed {seed}, {100 * accuracy:.1f} %: eight slots {ratio:.2f}× of one")
    return lines


def of_default_attack(row: dict[str, Any], data: str) -> bool:
    """Whether a run belongs on the curves of a data set."""
    return row["cell"]["data"] == data and row["cell"]["attack_epochs"] == ATTACK_EPOCHS


def draw(found: dict[str, dict[int, list[Point]]], wanted: Sequence[str]) -> None:
    """Accuracy–MSE curves of some designs, a line a seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "attention-cem", "svg.fonttype": "none", "font.size": 10})
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    for colour, name in enumerate(wanted):
        for number, (_, points) in enumerate(sorted(found[name].items())):
            x, y = zip(*((100 * a, m) for a, m in sorted(points)), strict=True)
            axis.plot(x, y, "o-", ms=3.5, lw=1.2, alpha=0.9, color=f"C{colour}", label=name if number == 0 else None)
    axis.set(
        xlim=(81, 88.8), ylim=(0, 0.042), xlabel="test accuracy, %", ylabel="inverter's MSE (higher: more private)"
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


def result_rows(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All stored runs."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page's text."""
    found = curves(row for row in rows if of_default_attack(row, "cifar10"))
    coarse = curves(row for row in rows if of_default_attack(row, "cifar100_coarse"))
    first = rows[0]
    newline = "\n"
    return f"""# Exploration: leads, not results

Generated from `results/exploration/*.json` ({len(rows)} runs) by `python -m studies.exploration.report`; the runs by
`python -m studies.exploration`. VGG-11 at the reference cut (z 8×8×8), {EPOCHS} epochs on 45,000
images, batch 512, then a residual inverter that knows the noise, {ATTACK_EPOCHS} epochs, scored on the
test images. Higher MSE is more private. Measured on {first["device"]}, torch {first["torch"]}.

How far to trust it: one or two seeds, a short attack, and test figures in view when cells were chosen.
{repeats_line(rows)} A design may only hide from a short
attack: see "Attacked for longer". "Accuracy" is that of a short training.

## At matched accuracy, CIFAR-10

σ .025 unless noise alone; MSE is the best of a seed's runs and of mixtures of two of them, the run without a surrogate
included. In brackets the ratio to k-means CEM with constant λ, seed by seed. A dash: no two efficient runs of
a seed lie around that accuracy within three points of each other.

![Accuracy and MSE of the designs](figures/exploration.svg)

{newline.join(matched_table(found, BASELINE))}

## What it shows

- Per-class Gaussians, slot mixtures and k-means CEM lie on one curve once λ no longer follows the step size; tied to
  it, under step sizes that fall as a cosine, k-means CEM is no better than noise (the published step sizes fall by
  stages and leave λ whole for longer: study `main-cifar10`). Eight slots instead of four, and attention that is not
  trained (its temperature included), lie on that curve too.
- Of the single penalties the closed-form attacker with random features is the best. It is best solved at every step:
  following the client by three products a step and an inverse of up to 10 steps ago costs a fraction and loses part of
  the gain, one of up to 44 steps ago loses more, one that is kept for 22 steps is no better than noise. A correction
  place by place does not pay, as a penalty.
- An adversarial inverter adds to every design and leaves little between them: at the higher accuracy slots and
  log-determinant lead, k-means CEM and the closed-form attacker follow, and the inverter alone, with more noise instead
  of a surrogate, is not far behind. k-means CEM with λ tied to the step size does worse there than that noise.
- What the client never sees can only be guessed from the rest: taking the slowest waves out of the image before the
  client adds most and needs no training. It adds to k-means CEM as well: near
  the accuracy of the blind client itself, most of the gain is the blindness. All of this is MSE: edges stay, and by
  SSIM a blind client alone shows more than k-means CEM does at the same accuracy ([main](main.md),
  [stacked](stacked.md)); with the closed-form attacker SSIM falls too, most where it is set strongly.
- Noise shaped as z varies within classes is worse than plain noise at the same accuracy. Why was not looked into.
- Four times as many epochs lift the accuracy of all and leave the order as it is, by two runs each, of which the
  preset's renew their inverse every 10 and every 5 steps; those of k-means CEM lie further apart than it and slots do.

Hence the preset `configs/cifar10-sound.toml`: a client blind to 4×4 waves, and the closed-form attacker with random
features, following the client, weight 0.5: beside blindness the few runs there are show no loss by following.

## Between the runs

Each efficient run that is not at the end of its curve, left out and read from the others of its design and seed; errors
as ln of the MSE read over the MSE measured. A mean below zero: the curves bulge outwards, and what is read between two
runs is rather too little privacy than too much.

{newline.join(left_out_lines(left_out(points for c in (found, coarse) for by in c.values() for points in by.values())))}

## Several kinds of images in a class: one slot against eight

CIFAR-100 with its 20 coarse labels (five fine classes each), MSE at the same accuracy, read between λ .05 and .15,
which lie up to seven points of accuracy apart:

{newline.join(modes_lines(coarse))}

Ratios on both sides of one: no effect of the number of slots can be seen here either.

## Trained for longer

{LONG_TRAINING} epochs instead of {EPOCHS}. In the last column the more accurate run of the
two stands as it is, and the other is read at its accuracy, on the straight line to the run with noise alone.

{newline.join(long_training_table(rows, LONG_TRAINING, BASELINE, TITLES["noise"]))}

## Attacked for longer

Where both figures are of one accuracy, they are of one client. Else the training was done again for the longer attack,
and the ratio holds the noise of two trainings as well; k-means CEM, which hides nothing on purpose, is the yardstick.

{newline.join(longer_table(row for row in rows if row["cell"]["data"] == "cifar10"))}

## Every run

{newline.join(full_table(rows))}
"""


def main() -> None:
    rows = result_rows()
    found = curves(row for row in rows if of_default_attack(row, "cifar10"))
    draw(found, [name for name in SHOWN if name in found])
    PAGE.write_text(page(rows))
    print(f"wrote {PAGE} and {FIGURE} from {len(rows)} runs")


if __name__ == "__main__":
    main()
