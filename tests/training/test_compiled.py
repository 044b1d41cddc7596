from functools import partial
from pathlib import Path

import pytest
import torch

from attention_cem.training import train

from .helpers import tiny_config, with_surrogate

SLOTS = {"slots": 4, "followed": False}  # following, they need more steps than this run has


@pytest.mark.slow
def test_train__compiled_learns_what_the_plain_run_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced, with its backward, and run without making machine code, which would take a minute."""
    overrides = with_surrogate("gated") | {"surrogate__attention_warmup_epochs": 0, "train__batch_size": 24}
    plain = train(tiny_config(tmp_path / "plain", **overrides)).metrics
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled = train(tiny_config(tmp_path / "compiled", **overrides, train__compile=True)).metrics
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
        assert ours["rob_loss"] == pytest.approx(theirs["rob_loss"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{"random_features": 8}, {"random_features": 8, "neighbourhood": 1}, SLOTS])
def test_train__a_compiled_penalty_is_maintained_and_finds_what_the_plain_one_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, int]
) -> None:
    """The inverse is renewed at other steps than in the plain run: the two are near each other and not equal."""
    penalty = {"weight": 0.3, "random_features": 0, "followed": True, "ramp_steps": 2, **kind}
    overrides = {f"defence__linear_leakage__{key}": value for key, value in penalty.items()}
    overrides["train__lr"] = 0.001
    plain = train(tiny_config(tmp_path / "plain", **overrides)).metrics
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled = train(tiny_config(tmp_path / "compiled", **overrides, train__compile=True)).metrics
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=0.02)
    # Until the first call of `maintain` the compiled attacker finds less.
    found, expected = (each[-1]["penalty.linear_leakage"] for each in (compiled, plain))
    assert found == pytest.approx(expected, rel=0.1)
