from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from torch import nn

from attention_cem.attacks import membership_attack
from attention_cem.attacks.membership import roc_auc, tpr_at_fpr
from attention_cem.auditing import Answers
from tests.attacks.helpers import CPU, challenge_for, identity_client, noise, small_data


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 60), st.integers(0, 10**6), st.sampled_from([3, 1000]))
def test_roc_auc__equals_scikit_learn_with_ties(n: int, seed: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, 2 * n).astype(float)
    truth = np.arange(2 * n) % 2 == 0
    assert roc_auc(torch.tensor(scores), torch.tensor(truth)) == pytest.approx(roc_auc_score(truth, scores))


@pytest.mark.parametrize("fpr", [0.01, 0.1, 0.5])
def test_tpr_at_fpr__equals_scikit_learn(fpr: float) -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(1000) % 2 == 0
    scores = rng.normal(size=1000) + truth
    false_rates, true_rates, _ = roc_curve(truth, scores, drop_intermediate=False)
    expected = true_rates[false_rates <= fpr].max()
    assert tpr_at_fpr(torch.tensor(scores), torch.tensor(truth), fpr) == pytest.approx(expected)


class _Memorising(nn.Module):
    """A server that is sure about dark images and unsure about bright ones."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        sure = (z.flatten(1).mean(1) < 0.45).float() * 5
        return torch.stack([sure, sure * 0, sure * 0, sure * 0], 1) * torch.tensor([1.0, 0, 0, 0])


def test_membership_attack__finds_members_that_z_gives_away_and_nobody_else(tmp_path: Path) -> None:
    data = small_data(train=200, test=200)
    darker = data.train.__class__(data.train.images // 2, data.train.labels, data.train.class_names)
    for name, members in (("leaky", darker), ("fair", data.train)):
        challenge = challenge_for(
            tmp_path / name, identity_client(), noise(0.01), data, members=members, non_members=data.test
        )
        result = membership_attack(challenge, device=CPU, epochs=20)
        assert result is not None
        truth = Answers(tmp_path / name, challenge.manifest["answers_sha256"]).membership()[result.positions]
        auc = roc_auc(result.scores["z"], truth)
        # 100 members against 100 others: an AUC of chance has a standard error of 0.041.
        assert auc > 0.95 if name == "leaky" else abs(auc - 0.5) < 4 * 0.041


def test_membership_attack__uses_server_outputs_when_granted(tmp_path: Path) -> None:
    data = small_data(train=100, test=100)
    challenge = challenge_for(
        tmp_path / "c", identity_client(), noise(0.01), data,
        server=_Memorising(), members=data.train, non_members=data.test,
    )  # fmt: skip
    result = membership_attack(challenge, device=CPU, epochs=2)
    assert result is not None and set(result.scores) == {"z", "loss", "outputs"}
    candidates = challenge.membership()
    assert candidates is not None
    assert set(candidates.known[result.positions].tolist()) == {-1}


def test_membership_attack__none_without_candidates(tmp_path: Path) -> None:
    assert (
        membership_attack(challenge_for(tmp_path / "c", identity_client(), noise(0.1), small_data()), device=CPU)
        is None
    )
