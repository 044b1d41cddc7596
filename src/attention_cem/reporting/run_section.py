"""What the page says about one run, and about all of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from attention_cem.reporting.charts import COLOURS, Line, Mark, bar_chart, heat_map, histogram, xy_chart
from attention_cem.reporting.health import Health, has_taught, health_of, penalties
from attention_cem.reporting.pictures import Card, cards_of
from attention_cem.reporting.sources import RunView, number, objects, strings
from attention_cem.reporting.texts import bilingual, clip, decibel, figure, label, percent, say, sentence, shape
from attention_cem.reporting.words import ASSUMPTIONS_ZH, WORDS

_CURVES = (
    ("accuracy", "curve_accuracy"),
    ("loss", "curve_loss"),
    ("rob_loss", "curve_rob"),
    ("intra_mse", "curve_intra"),
    ("leakage_share", "curve_leakage"),
    ("lambd", "curve_lambd"),
    ("shutoff_share", "curve_shutoff"),
)
_ALWAYS = ("accuracy", "loss", "rob_loss", "intra_mse")  # the others are drawn where they change
_STATUSES = ("passed", "under-trained", "kept its start", "miscalibrated")
_MOST_OWN_CURVES = 12
_MOST_CLASSES = 40
_MOST_POINTS = 160


@dataclass(frozen=True)
class RunSection:
    """Everything the template needs for one run."""

    name: str
    anchor: str
    colour: str
    accuracy: str
    headline: dict[str, str] | None
    answer: Markup
    how_sure: list[Markup]
    summary: list[tuple[Markup, Markup]]
    alerts: list[Markup]
    health: Health
    attack: str
    cards: list[Card]
    per_class: Markup | None
    by_waves: Markup | None
    more_classes: int
    one_slot: bool
    heat_map: Markup | None
    histogram: Markup | None
    curves: list[tuple[Markup, Markup]]
    receipts: list[dict[str, Any]]
    settled: tuple[Markup, Markup] | None
    warnings: list[Markup]
    membership: list[tuple[str, str, str]]
    bounds: list[tuple[str, str, Markup]]
    no_bounds: Markup | None
    configuration: list[tuple[str, str]]
    facts: list[tuple[str, str]]
    has_surrogate: bool
    has_penalties: bool
    finished: bool


def run_section(run: RunView, index: int, all_names: Sequence[str]) -> RunSection:
    """Gather one run's part of the page."""
    audit, evidence = run.audit or {}, run.evidence
    classes = class_names(run)
    ordered = sorted(evidence.class_mse.items(), key=lambda item: item[1]) if evidence else []
    shares = run.slot_shares
    one_slot = bool(shares) and max(map(len, shares)) == 1
    rows = [clip(classes[i], 40) if i < len(classes) else str(i) for i in range(len(shares))]
    bounds = audit.get("bounds") if isinstance(audit.get("bounds"), dict) else {}
    settled = audit.get("settled") if isinstance(audit.get("settled"), dict) else None
    repeated = list(all_names).count(run.name) > 1
    return RunSection(
        name=clip(f"{run.folder.resolve().parent.name}/{run.name}" if repeated else run.name, 80),
        anchor=f"run-{index}",
        colour=COLOURS[index % len(COLOURS)],
        accuracy=percent(accuracy_of(run)),
        headline=_headline(audit),
        answer=_answer(run),
        how_sure=_how_sure(run),
        summary=_summary(run),
        alerts=[say("other_weights")] if run.audit_is_of_other_weights else [],
        health=health_of(run),
        attack=clip(evidence.attack, 60) if evidence else "",
        cards=cards_of(evidence, classes) if evidence else [],
        per_class=bar_chart(ordered[:_MOST_CLASSES], floor=number(audit.get("floor_mse"))) if ordered else None,
        by_waves=_by_waves(audit),
        more_classes=max(0, len(ordered) - _MOST_CLASSES),
        one_slot=one_slot,
        heat_map=heat_map(shares, rows) if shares and not one_slot else None,
        histogram=histogram([value for row in shares for value in row]) if shares else None,
        curves=_curves(run.metrics, COLOURS[index % len(COLOURS)]),
        receipts=[_receipt(entry) for entry in objects(audit.get("attacks"))],
        settled=_settled(settled),
        warnings=[sentence(text) for text in strings(audit.get("warnings"))],
        membership=_membership(audit.get("membership")),
        bounds=_bounds(bounds or {}),
        no_bounds=_no_bounds(bounds or {}),
        configuration=[(clip(key, 80), clip(value, 200)) for key, value in run.config.items()],
        facts=_facts(run),
        has_surrogate=str(run.config.get("surrogate.name", "none")) != "none",
        has_penalties=bool(run.metrics and penalties(run.metrics[-1])),
        finished=run.facts is not None,
    )


def class_names(run: RunView) -> list[str]:
    """Names of the classes, as the run recorded them."""
    names = (run.facts or {}).get("class_names")
    return [str(name) for name in names] if isinstance(names, list) else []


def accuracy_of(run: RunView) -> float | None:
    """The audited accuracy; of a run without an audit the one on its test images."""
    found = number((run.audit or {}).get("accuracy"))
    test = (run.facts or {}).get("test")
    return found if found is not None or not isinstance(test, dict) else number(test.get("accuracy"))


def _headline(audit: dict[str, Any]) -> dict[str, str] | None:
    worst = audit.get("headline")
    if not isinstance(worst, dict):
        return None
    return {
        "attack": clip(worst.get("attack"), 60),
        "mse": figure(worst.get("mse")),
        "psnr": decibel(worst.get("psnr")),
        "ssim": figure(worst.get("ssim"), 2),
        "status": clip(worst.get("status"), 30),
        "floor": figure(audit.get("floor_mse")),
    }


def _answer(run: RunView) -> Markup:
    """What leaks, in one sentence."""
    audit = run.audit or {}
    worst = audit.get("headline")
    if not isinstance(worst, dict):
        return _unknown(run)
    error, floor = number(worst.get("mse")), number(audit.get("floor_mse"))
    share = figure(100 * error / floor, 3) if error is not None and floor else "–"
    return say("answer", count=len(objects(audit.get("attacks"))), share=share)


def _unknown(run: RunView) -> Markup:
    return say("not_audited" if run.audit is None else "no_headline")


def _how_sure(run: RunView) -> list[Markup]:
    """What that sentence stands on."""
    audit = run.audit or {}
    worst, settled = audit.get("headline"), audit.get("settled")
    if not isinstance(worst, dict):
        return []
    told = [say("other_weights")] if run.audit_is_of_other_weights else []
    reasons = [worst.get("note"), settled.get("reason") if isinstance(settled, dict) else None]
    return told + [sentence(reason) for reason in reasons if isinstance(reason, str) and reason]


def _by_waves(audit: dict[str, Any]) -> Markup | None:
    worst = audit.get("headline")
    parts, floors = (worst or {}).get("waves") if isinstance(worst, dict) else None, audit.get("floor_waves")
    if not isinstance(parts, dict) or not isinstance(floors, dict):
        return None
    rows = []
    for band, part in parts.items():
        error, floor = number(part), number(floors.get(band))
        if error is not None and floor:
            rows.append((clip(band, 20), error / floor))
    return bar_chart(rows, floor=1.0) if rows else None


def _summary(run: RunView) -> list[tuple[Markup, Markup]]:
    facts, audit = run.facts or {}, run.audit or {}
    told = []
    if facts:
        described = _defence_words(facts.get("defences"))
        sent = say("sent_text", image=shape(facts.get("image_shape")), z=shape(facts.get("z_shape")), defence=described)
        surrogate = clip(run.config.get("surrogate.name", "none"), 60)
        if has_taught(run):
            sent += " " + say("trained_with", name=surrogate, lambd=figure(run.config.get("surrogate.lambd")))
        waves = number(run.config.get("model.blind_frequencies"))
        if waves:
            sent += " " + say("blind_client", waves=figure(waves))
        told.append((say("sent"), sent))
    threat = audit.get("threat_model")
    if isinstance(threat, dict):
        told.append((say("who"), say("who_white" if threat.get("white_box") is True else "who_black")))
    worst = audit.get("headline")
    if isinstance(worst, dict):
        interval = worst.get("ci95")
        low, high = interval if isinstance(interval, list) and len(interval) == 2 else (None, None)
        got = say(
            "back_text",
            count=len(objects(audit.get("attacks"))),
            attack=clip(worst.get("attack"), 60),
            mse=figure(worst.get("mse")),
            low=figure(low, 3),
            high=figure(high, 3),
            psnr=decibel(worst.get("psnr")),
            ssim=figure(worst.get("ssim"), 2),
            floor=figure(audit.get("floor_mse")),
        )
        told.append((say("back"), got + Markup("<br><em>") + sentence(worst.get("note", "")) + Markup("</em>")))
    else:
        told.append((say("back"), _unknown(run)))
    return told


def _defence_words(described: Any) -> tuple[str, str] | str:
    stages = objects(described.get("defences")) if isinstance(described, dict) else []
    return clip("; ".join(_plain(stage) for stage in stages), 300) if stages else WORDS["no_defence"]


def _plain(stage: dict[str, Any]) -> str:
    figures = {key: value for key, value in stage.items() if number(value) is not None}
    inside = ", ".join(f"{clip(key, 30)} {figure(value)}" for key, value in figures.items())
    name = clip(stage.get("name", "?"), 60)
    return f"{name} ({inside})" if inside else name


def _curves(rows: list[dict[str, Any]], colour: str) -> list[tuple[Markup, Markup]]:
    drawn = []
    stride = max(1, -(-len(rows) // _MOST_POINTS))
    own = sorted({key for row in rows for key in row if key.startswith("surrogate.")})[:_MOST_OWN_CURVES]
    for key, title in (*_CURVES, *((key, key.removeprefix("surrogate.")) for key in own)):
        points = [(row["epoch"], row[key]) for row in rows[::-1][::stride][::-1] if number(row.get(key)) is not None]
        if not points or (key not in _ALWAYS and len({y for _, y in points}) == 1):
            continue
        marks = [Mark(x, y, f"{figure(x)}: {figure(y)}", colour) for x, y in points]
        chart = xy_chart(marks, [Line(points, colour)], x_key="epoch", y_key=None, width=420, height=230)
        drawn.append((label(title), chart))
    return drawn


def _receipt(entry: dict[str, Any]) -> dict[str, Any]:
    receipt = entry.get("receipt") if isinstance(entry.get("receipt"), dict) else {}
    receipt = receipt or {}
    calibration = receipt.get("calibration") if isinstance(receipt.get("calibration"), dict) else {}
    calibrated = receipt.get("calibrated")
    status = entry.get("status")
    reasons = [receipt.get("reason"), (calibration or {}).get("reason")]
    return {
        "name": clip(entry.get("name"), 60),
        "mse": figure(entry.get("mse")),
        "psnr": decibel(entry.get("psnr")),
        "ssim": figure(entry.get("ssim"), 2),
        "status": say(status) if status in _STATUSES else clip(status, 30),
        "good": status == "passed",
        "converged": say("yes" if receipt.get("converged") is True else "no"),
        "calibrated": say("not_tried" if calibrated is None else "yes" if calibrated is True else "no"),
        "gap": figure(receipt.get("train_test_gap"), 2),
        "seconds": figure(receipt.get("seconds"), 3),
        "reasons": [sentence(reason) for reason in reasons if isinstance(reason, str) and reason],
        # The points of an untrained baseline are settings it tried, not progress.
        "curve": _attack_curve(receipt.get("curve")) if number(receipt.get("epochs")) else None,
    }


def _attack_curve(curve: Any) -> Markup | None:
    if not isinstance(curve, dict):
        return None
    epochs, errors = curve.get("epoch"), curve.get("mse")
    if not isinstance(epochs, list) or not isinstance(errors, list):
        return None
    pairs = [(x, y) for x, y in zip(epochs, errors, strict=False) if number(x) is not None and number(y) is not None]
    pairs = pairs[:: max(1, -(-len(pairs) // _MOST_POINTS))]
    if len(pairs) < 2:
        return None
    marks = [Mark(x, y, f"{figure(x)}: {figure(y)}", COLOURS[1]) for x, y in pairs]
    return xy_chart(marks, [Line(pairs, COLOURS[1])], x_key="epoch", y_key="mse", width=420, height=230)


def _settled(settled: dict[str, Any] | None) -> tuple[Markup, Markup] | None:
    if settled is None:
        return None
    verdict = str(settled.get("verdict"))
    known = verdict in ("settled", "not settled", "not judged")
    return say(f"verdict_{verdict}") if known else Markup("{}").format(clip(verdict, 30)), sentence(
        settled.get("reason")
    )


def _membership(found: Any) -> list[tuple[str, str, str]]:
    rows = found.items() if isinstance(found, dict) else ()
    return [
        (clip(name, 60), figure(row.get("auc"), 3), percent(row.get("tpr_at_1_percent_fpr")))
        for name, row in rows
        if isinstance(row, dict)
    ]


def _bounds(bounds: dict[str, Any]) -> list[tuple[str, str, Markup]]:
    assumptions = bounds.get("assumptions") if isinstance(bounds.get("assumptions"), dict) else {}
    return [
        (clip(key, 60), figure(value), _assumed(key, (assumptions or {}).get(key, "")))
        for key, value in bounds.items()
        if number(value) is not None
    ]


def _assumed(key: str, english: Any) -> Markup:
    told = clip(english)
    return bilingual(told, ASSUMPTIONS_ZH.get(key, told) if told else "")


def _no_bounds(bounds: dict[str, Any]) -> Markup | None:
    if bounds.get("available") is not False:
        return None
    told = sentence(bounds.get("reason", ""))
    return say("bounds_none", reason="") + told


def _facts(run: RunView) -> list[tuple[str, str]]:
    facts, audit = run.facts or {}, run.audit or {}
    plain = ("best_epoch", "best_accuracy", "epochs", "seconds", "train_images", "validation_images", "test_images",
             "client_parameters", "server_parameters", "data_source", "config_hash")  # fmt: skip
    rows = [(key, clip(facts[key], 120)) for key in plain if key in facts]
    rows += [
        (f"audit.{key}", clip(audit[key], 120))
        for key in ("budget", "seed", "device", "challenge_sha256")
        if key in audit
    ]
    about = audit.get("about")
    rows += [
        (f"audit.{clip(key, 40)}", clip(value, 120))
        for key, value in (about.items() if isinstance(about, dict) else ())
    ]
    stages = facts.get("defences")
    for stage in objects(stages.get("defences")) if isinstance(stages, dict) else ():
        rows.append((clip(stage.get("name"), 40), clip(stage.get("guarantee"), 400)))
    for source in ("versions", "hardware"):
        inner = facts.get(source)
        rows += [(clip(key, 40), clip(value, 80)) for key, value in (inner.items() if isinstance(inner, dict) else ())]
    return rows
