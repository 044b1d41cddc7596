from functools import partial
from pathlib import Path

import pytest
import torch

from attention_cem.training import train

from .helpers import tiny_config, with_surrogate


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
