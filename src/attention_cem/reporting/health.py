"""Is the surrogate alive? The run's own figures and alarms, put into plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from attention_cem.reporting.sources import RunView, number, strings
from attention_cem.reporting.texts import clip, figure, say, sentence, whole_percent

_NEARLY_ALL = 0.995  # what rounds to 100 %
_TOO_MUCH = 0.5
_MOST_ALARMS = 12
_PENALTY = "penalty."


@dataclass(frozen=True)
class Health:
    """What to say about a surrogate.

    Args:
        bad: sentences in red. notes: sentences in amber. good: the sentence of a healthy one, or of there being none.
        vitals: figures of the last epoch.
    """

    bad: list[Markup]
    notes: list[Markup]
    good: Markup | None
    vitals: list[tuple[str, str]]


def health_of(run: RunView) -> Health:
    """Judge by the recorded shut-off share, λ and alarms; thresholds are those of the run's own alarm."""
    name = str(run.config.get("surrogate.name", "none"))
    last: dict[str, Any] = run.metrics[-1] if run.metrics else {}
    bad, notes = _alarm_sentences(run.metrics)
    if name == "none":
        terms = penalties(last)
        names = ", ".join(f"{penalty} {figure(value)}" for penalty, value in terms.items())
        protected = say("health_penalties", names=names) if terms else say("health_none")
        return Health(bad, notes, None if bad else protected, [])
    share = _shut_off(run)
    if _never_weighed(run):
        bad.insert(0, say("health_never", name=name))
    elif share is not None and share > _TOO_MUCH:
        key = "shut_off_all" if share >= _NEARLY_ALL else "shut_off_part"
        bad.insert(0, say(key, name=name, share=whole_percent(share)))
    failed = number(last.get("nonfinite_steps"))
    if failed:
        bad.append(say("nonfinite", count=figure(failed)))
    good = None
    if run.metrics and not bad:
        good = say(
            "health_good",
            name=name,
            lambd=figure(last.get("lambd")),
            share=whole_percent(0.0 if share is None else share),
        )
    return Health(bad, notes, good, _vitals(last))


def has_taught(run: RunView) -> bool:
    """Whether the client was trained with a surrogate, as far as the files say: it had weight, and was not shut off."""
    share = _shut_off(run)
    named = run.config.get("surrogate.name", "none") != "none" and bool(number(run.config.get("surrogate.lambd")))
    return named and not _never_weighed(run) and (share is None or share < _NEARLY_ALL)


def _never_weighed(run: RunView) -> bool:
    return bool(run.metrics) and not any(number(row.get("lambd")) for row in run.metrics)


def _shut_off(run: RunView) -> float | None:
    share = number((run.facts or {}).get("shutoff_share_when_active"))
    return share if share is not None or not run.metrics else number(run.metrics[-1].get("shutoff_share"))


def _alarm_sentences(metrics: list[dict[str, Any]]) -> tuple[list[Markup], list[Markup]]:
    """Alarms of the last epoch, and those of earlier ones that it does not have."""
    now = _alarms(metrics[-1]) if metrics else []
    kinds = {_kind(text) for text in now}
    earlier: list[Markup] = []
    for row in metrics[:-1]:
        for text in _alarms(row):
            if _kind(text) not in kinds and len(earlier) < _MOST_ALARMS:
                kinds.add(_kind(text))
                where = Markup(" ({} {}) ").format(say("epoch"), figure(row.get("epoch")))
                earlier.append(say("health_earlier") + where + sentence(text))
    return [say("health_alarm") + " " + sentence(text) for text in now], earlier


def penalties(row: dict[str, Any]) -> dict[str, float]:
    """The defences' terms of the loss in an epoch, by the defence's name."""
    found = {key.removeprefix(_PENALTY): number(row[key]) for key in row if key.startswith(_PENALTY)}
    return {clip(name, 60): value for name, value in found.items() if value is not None}


def _alarms(row: dict[str, Any]) -> list[str]:
    return strings(row.get("alarms"), _MOST_ALARMS)


def _kind(text: str) -> str:
    return re.sub(r"[\d.,+%-]+", "", text)


def _vitals(row: dict[str, Any]) -> list[tuple[str, str]]:
    plain = ("rob_loss", "intra_mse", "lambd", "active_classes", "shutoff_share")
    names = [*plain, *(name for name in row if name.startswith("surrogate."))]
    return [(name.removeprefix("surrogate."), figure(row[name])) for name in names if number(row.get(name)) is not None]
