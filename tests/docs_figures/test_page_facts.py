"""Facts on the pages that the code decides: argument names and defaults, the alarms' sentences."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from attention_cem import GatedAttentionCEM, SlotCrossAttentionCEM
from attention_cem.surrogates.alarm import SelfDeceptionAlarm
from attention_cem.surrogates.cross_attention import GatedCrossAttention
from attention_cem.training import run_log
from attention_cem.training.chance_alarm import ChanceAlarm
from attention_cem.training.config import SurrogateConfig

DOCS = Path(__file__).parents[2] / "docs"
OWNERS = {each.__name__: each for each in (SlotCrossAttentionCEM, GatedAttentionCEM, GatedCrossAttention)}
HEALTH = {
    "shutoff_share": 1.0,
    "soft_gate_mean": 0.0,
    "snr_gate_mean": 1.0,
    "dead_slots": 2.0,
    "effective_samples": 1.0,
    "active_classes": 0.0,
}


def default_of(owner: str, argument: str) -> object:
    if owner == "SurrogateConfig":
        return next(field.default for field in fields(SurrogateConfig) if field.name == argument)
    return inspect.signature(OWNERS[owner]).parameters[argument].default


@pytest.mark.parametrize("language", ["en", "zh"])
def test_arguments__names_and_defaults_are_those_of_the_code(language: str) -> None:
    text = (DOCS / language / "understand" / "equations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE)
    assert len(rows) > 25
    for argument, owner, shown in rows:
        assert str(default_of(owner, argument)) == shown, argument


@pytest.mark.parametrize("language", ["en", "zh"])
def test_arguments__every_scalar_of_the_documents_is_listed(language: str) -> None:
    text = (DOCS / language / "understand" / "equations.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    parameters = inspect.signature(SlotCrossAttentionCEM).parameters
    ours = {"feature_dim", "slot_dim", "gate_momentum", "gate_hidden", "objective", "seed", "log_every", "label_space"}
    assert set(parameters) - ours <= listed


@pytest.mark.parametrize("language", ["en", "zh"])
def test_alarms__every_sentence_is_explained(language: str) -> None:
    alarm = SelfDeceptionAlarm(window=1)
    alarm.update({"rob_loss": 1.0, "intra_mse": 0.1})
    said = alarm.update({"rob_loss": 0.1, "intra_mse": 0.1, **HEALTH})
    assert len(said) == len(HEALTH) + 1
    text = (DOCS / language / "tune.md").read_text(encoding="utf-8")
    explained = [row.split("|")[1].strip() for row in text.splitlines() if row.startswith("|")]
    never = ChanceAlarm(num_classes=10, patience=1).update(0.1)
    assert never is not None
    for sentence in [never, *said, *re.findall(r"the surrogate was not finite on", inspect.getsource(run_log))]:
        parts = [part.strip(" .,:()") for part in re.split(r"[-+]?\d[\d.,]* ?%?|in the same .* epochs", sentence)]
        wanted = [part for part in parts if len(part) > 8]
        assert any(all(part in row for part in wanted) for row in explained), sentence
