"""Where to cut: every candidate fine-tuned, attacked and timed, and one of them recommended with its reason."""

from __future__ import annotations

import copy
import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attention_cem.auditing import Budget, audit, write_challenge
from attention_cem.data import ImageData, to_float
from attention_cem.shipping.short_training import train_shortly
from attention_cem.splitting import Bottleneck, Cut, SplitModel, evaluating, list_cuts, split
from attention_cem.training.step import within_class_mse

MSE_NOISE = 0.0007
"""Differences of attack MSE below this are no difference: seed-to-seed noise of the reference setting."""
_TIMINGS = 30
_SAME_DEPTH = 0.1
_NEAR_CHANCE = 1.5


@dataclass(frozen=True)
class CutReport:
    """What one cut costs and what it gives away.

    Args:
        cut: layer behind which the model is cut.
        z_shape: shape of what is sent, after the bottleneck.
        z_bytes: bytes of one float32 feature.
        client_parameters: parameters on the device.
        client_macs: multiply-accumulates on the device for one image.
        server_macs: the same on the server.
        client_ms: median milliseconds of the client for one image, measured here.
        accuracy: on the test images, through the noise, after fine-tuning.
        attack_mse: error of the best attack of the audit; higher is more private.
        attack_note: what the audit says against its own figure; empty if nothing.
        class_radius: root mean square distance of z from its class mean, in units of the noise (in units of z if
            there is none); lower means less about the individual image.
    """

    cut: str
    z_shape: tuple[int, ...]
    z_bytes: int
    client_parameters: int
    client_macs: int
    server_macs: int
    client_ms: float
    accuracy: float
    attack_mse: float
    attack_note: str
    class_radius: float


@dataclass(frozen=True)
class Advice:
    """All reports, from the shallowest cut to the deepest, and the recommended one."""

    reports: tuple[CutReport, ...]
    recommended: str
    reason: str


def advise(
    model: nn.Module,
    data: ImageData,
    work: str | os.PathLike[str],
    *,
    cuts: Sequence[str] | None = None,
    most: int = 6,
    epochs: int = 3,
    lr: float = 0.01,
    sigma: float = 0.025,
    bottleneck: Bottleneck | None = Bottleneck(8, "sigmoid"),  # noqa: B008 (frozen)
    budget: str | Budget = "quick",
    accuracy_slack: float = 0.02,
    most_client_ms: float | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Advice:
    """Compare cuts of a trained model.

    For each cut a copy of ``model`` gets the bottleneck and the noise there, is fine-tuned for a few epochs, and is
    attacked. Figures of a quick audit rank cuts; they are no statement about the privacy of the chosen one, which
    deserves a training of its own and a thorough audit.

    Args:
        model: the whole model, best already trained; it is left untouched.
        data: images to fine-tune, attack and score with.
        work: folder for the runs and audits; must not exist or be empty.
        cuts: layer names; otherwise up to ``most`` cuts of distinct depth, see `candidate_cuts`.
        most: candidates at most.
        epochs: of fine-tuning.
        lr: its step size.
        sigma: standard deviation of the noise on z; 0 for none.
        bottleneck: layers put at every cut; None for bare cuts.
        budget: of the audit.
        accuracy_slack: how far below the most accurate cut the recommended one may lie.
        most_client_ms: longest client time allowed, if any.
        seed: of everything random.
        progress: told what is being done.

    Raises:
        ValueError: a layer at which the model cannot be cut, an occupied folder, impossible settings, no client
            within ``most_client_ms``; all of it before anything is trained.
    """
    check_settings(most=most, epochs=epochs, sigma=sigma, accuracy_slack=accuracy_slack, most_client_ms=most_client_ms)
    folder = Path(work)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; name another folder")
    example = torch.zeros(2, *data.image_shape)
    if cuts is None:
        names = [cut.name for cut in candidate_cuts(list_cuts(model, example), most)]
    else:
        names = list(cuts)
        check_cuts(model, names, data.image_shape, bottleneck)
    cut_models = []
    for name in names:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            cut_models.append(split(copy.deepcopy(model).cpu(), name, bottleneck=bottleneck, example=example))
    times = [milliseconds(halves.client, data.image_shape) for halves in cut_models]
    _check_speed(times, most_client_ms)
    folder.mkdir(parents=True, exist_ok=True)
    reports = []
    for position, (name, halves, client_ms) in enumerate(zip(names, cut_models, times, strict=True)):
        progress(f"cut {position + 1} of {len(names)}: {name}")
        place = folder / f"{position:02d}"
        reports.append(_report(name, halves, client_ms, data, place, epochs, lr, sigma, budget, seed))
    reports.sort(key=lambda report: report.client_macs)
    chosen, reason = recommend(reports, accuracy_slack, most_client_ms)
    if max(each.accuracy for each in reports) < _NEAR_CHANCE / data.num_classes:
        reason += " But all accuracies are near chance: train longer before you choose."
    return Advice(tuple(reports), chosen, reason)


def check_settings(
    *, most: int, epochs: int, sigma: float, accuracy_slack: float, most_client_ms: float | None
) -> None:
    """Refuse, before anything is trained, numbers with which no advice can come out.

    >>> check_settings(most=6, epochs=0, sigma=0.1, accuracy_slack=0.02, most_client_ms=None)
    Traceback (most recent call last):
    ValueError: expected epochs ≥ 1, received 0
    """
    for name, value, fine, rule in (
        ("most", most, most >= 1, "≥ 1"),
        ("epochs", epochs, epochs >= 1, "≥ 1"),
        ("sigma", sigma, 0 <= sigma < inf, "≥ 0 and finite"),
        ("accuracy_slack", accuracy_slack, accuracy_slack >= 0, "≥ 0"),
        ("most_client_ms", most_client_ms, most_client_ms is None or most_client_ms > 0, "> 0"),
    ):
        if not fine:
            raise ValueError(f"expected {name} {rule}, received {value}")


def check_cuts(
    model: nn.Module,
    cuts: Sequence[str],
    image_shape: Sequence[int],
    bottleneck: Bottleneck | None = Bottleneck(8, "sigmoid"),  # noqa: B008 (frozen)
) -> None:
    """Refuse a layer at which the model, trained or not, cannot be cut; ``model`` is left untouched."""
    if not cuts:
        raise ValueError("there is no cut to choose from")
    example = torch.zeros(2, *image_shape)
    with torch.random.fork_rng(devices=[]):
        for name in cuts:
            split(copy.deepcopy(model).cpu(), name, bottleneck=bottleneck, example=example)


def candidate_cuts(cuts: Sequence[Cut], most: int) -> list[Cut]:
    """Up to ``most`` cuts of distinct depth: of those whose clients differ by less than 10 %, the one with least z.

    >>> layers = [Cut("conv", (8, 4, 4), 100), Cut("norm", (8, 4, 4), 102), Cut("pool", (8, 2, 2), 102)]
    >>> [cut.name for cut in candidate_cuts([*layers, Cut("deep", (8, 2, 2), 500)], 6)]
    ['pool', 'deep']
    """
    groups: list[list[Cut]] = []
    for cut in sorted(cuts, key=lambda each: each.client_parameters):
        if groups and cut.client_parameters <= (1 + _SAME_DEPTH) * groups[-1][0].client_parameters:
            groups[-1].append(cut)
        else:
            groups.append([cut])
    best = [min(group, key=lambda cut: prod(cut.z_shape)) for group in groups]
    if len(best) <= most:
        return best
    if most == 1:
        return [best[len(best) // 2]]
    return [best[round(place * (len(best) - 1) / (most - 1))] for place in range(most)]


def recommend(
    reports: Sequence[CutReport], accuracy_slack: float, most_client_ms: float | None = None
) -> tuple[str, str]:
    """The cut to take and why: accurate enough, fast enough, then hardest to invert, then cheapest.

    Raises:
        ValueError: no report, or none fast enough.
    """
    if not reports:
        raise ValueError("there is no cut to choose from")
    _check_speed([each.client_ms for each in reports], most_client_ms)
    fast = [each for each in reports if most_client_ms is None or each.client_ms <= most_client_ms]
    top = max(each.accuracy for each in fast)
    accurate = [each for each in fast if each.accuracy >= top - accuracy_slack]
    hardest = max(each.attack_mse for each in accurate)
    level = [each for each in accurate if each.attack_mse >= hardest - MSE_NOISE]
    chosen = min(level, key=lambda each: each.client_macs)
    reason = (
        f"{len(accurate)} of {len(reports)} cuts "
        + (f"have a client within {most_client_ms:g} ms and " if most_client_ms is not None else "")
        + f"reach {top - accuracy_slack:.1%} accuracy (the best, {top:.1%}, less {accuracy_slack:.1%}); among them "
        f"{chosen.cut} leaves the attacker the largest error (MSE {chosen.attack_mse:.4f})"
    )
    if len(level) > 1:
        reason += f", level with {len(level) - 1} other(s) within {MSE_NOISE}, and has the cheapest client of these"
    return chosen.cut, f"{reason}. Its client takes {chosen.client_ms:.2f} ms and sends {chosen.z_bytes} bytes."


def _check_speed(times: Sequence[float], most_client_ms: float | None) -> None:
    quickest = min(times, default=0.0)
    if most_client_ms is not None and quickest > most_client_ms:
        raise ValueError(f"no cut has a client within {most_client_ms:g} ms; the quickest takes {quickest:.2f} ms")


def _report(
    name: str,
    halves: SplitModel,
    client_ms: float,
    data: ImageData,
    place: Path,
    epochs: int,
    lr: float,
    sigma: float,
    budget: str | Budget,
    seed: int,
) -> CutReport:
    place.mkdir()
    result, run = train_shortly(halves, data, place / "run", epochs=epochs, lr=lr, seed=seed, sigma=sigma)
    write_challenge(
        place / "challenge",
        client=run.model.client,
        stack=run.stack,
        attacker=data.train,
        test=data.test,
        white_box=False,
        about={"cut": name},
        seed=seed,
    )
    # Calibration depends on the images alone, so all cuts share it.
    cache = place.parent / "calibration"
    record = audit(
        place / "challenge", place / "audit", budget=budget, device="cpu", calibration_cache=cache, seed=seed
    )
    shutil.rmtree(place / "challenge")  # pictures of the data set; the record stays
    mse, note = attack_figure(record)
    z_shape = run.z_shape
    return CutReport(
        cut=name,
        z_shape=z_shape,
        z_bytes=4 * prod(z_shape),
        client_parameters=sum(each.numel() for each in run.model.client.parameters()),
        client_macs=macs(run.model.client, data.image_shape),
        server_macs=macs(run.model.server, z_shape),
        client_ms=client_ms,
        accuracy=result.test_accuracy,
        attack_mse=mse,
        attack_note=note,
        class_radius=_class_radius(run.model.client, data, run.stack.noise_std() or 1.0),
    )


def attack_figure(record: dict[str, Any]) -> tuple[float, str]:
    """The headline of an audit; without one the smallest error of any attack, and the reason why it counts less."""
    if record["headline"] is not None:
        return float(record["headline"]["mse"]), str(record["headline"]["note"] or "")
    return min(
        float(each["mse"]) for each in record["attacks"]
    ), "no attack was calibrated; a thorough audit may differ"


def macs(half: nn.Module, shape: Sequence[int]) -> int:
    """Multiply-accumulates of one sample's forward pass: half of the floating point operations torch counts.

    >>> macs(nn.Linear(10, 5), (10,))
    50
    """
    with FlopCounterMode(display=False) as counter, evaluating(half), torch.no_grad():
        half(torch.zeros(1, *shape))
    return int(counter.get_total_flops()) // 2


def milliseconds(half: nn.Module, shape: Sequence[int]) -> float:
    """Median time of one sample's forward pass on this CPU, after a warm-up."""
    sample = torch.zeros(1, *shape)
    times = []
    with evaluating(half), torch.no_grad():
        for _ in range(_TIMINGS):
            began = time.perf_counter()
            half(sample)
            times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[_TIMINGS // 3 :])


def _class_radius(client: nn.Module, data: ImageData, unit: float) -> float:
    with evaluating(client), torch.no_grad():
        z = torch.cat([client(to_float(part)).flatten(1) for part in data.test.images.split(256)])
    return float(within_class_mse(z, data.test.labels, data.num_classes).sqrt()) / unit
