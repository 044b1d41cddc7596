import copy

import pytest
import torch
from torch import Tensor, nn

from attention_cem import GatedAttentionCEM, KMeansCEM, SlotCrossAttentionCEM, backward_at_cut, detach_at_cut
from attention_cem.surrogates.base import ConditionalEntropySurrogate

LAMBDA = 16.0


class CountedBackward(nn.Module):
    """A client that counts how often its backward runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 8))
        self.backwards = 0

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layers[0](x)
        if hidden.requires_grad:
            hidden.register_hook(lambda _: setattr(self, "backwards", self.backwards + 1))
        return self.layers[1:](hidden)


def surrogates() -> dict[str, ConditionalEntropySurrogate]:
    kmeans = KMeansCEM(8, num_classes=3, num_clusters=2)
    kmeans.double().fit(torch.randn(40, 8), torch.arange(40) % 3)
    slot = SlotCrossAttentionCEM(8, early_shut_steps=0, early_hard_thresh=1, early_gate_thresh=1)
    return {
        "slot_cross": slot,
        "per_dim": GatedAttentionCEM(8, form="per_dim"),
        "trace": GatedAttentionCEM(8, form="trace"),
        "kmeans": kmeans,
    }


def parts() -> tuple[CountedBackward, nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(18, 5).double(), torch.arange(18) % 3
    return CountedBackward().double(), nn.Linear(8, 3).double(), x, y


@pytest.mark.parametrize("name", ["slot_cross", "per_dim", "trace", "kmeans"])
@pytest.mark.parametrize("plain_sum", [False, True])
def test_backward_at_cut__equals_two_backwards(name: str, plain_sum: bool) -> None:
    client, server, x, y = parts()
    surrogate = surrogates()[name].double().eval()
    modules = (client, server, surrogate)
    two_client, two_server, two_surrogate = copy.deepcopy(modules)

    z = two_client(x)
    two_surrogate(z, y).rob_loss.backward(retain_graph=True)
    stored = {p: p.grad.clone() for p in two_client.parameters()}
    estimator = {p: p.grad.clone() for p in two_surrogate.parameters()}
    for module in (two_client, two_server, two_surrogate):
        module.zero_grad()
    nn.functional.cross_entropy(two_server(z), y).backward()
    for p, gradient in stored.items():
        p.grad += LAMBDA * gradient
    for p, gradient in estimator.items():
        p.grad = gradient * (LAMBDA if plain_sum else 1)
    assert two_client.backwards == 2

    z = client(x)
    feature = detach_at_cut(z)
    task_loss = nn.functional.cross_entropy(server(feature), y)
    skipped = backward_at_cut(
        z,
        feature,
        task_loss,
        surrogate(feature, y).rob_loss,
        lambd=LAMBDA,
        estimator=surrogate,
        plain_sum=plain_sum,
    )
    assert client.backwards == 1 and not skipped
    for ours, theirs in zip(modules, (two_client, two_server, two_surrogate), strict=True):
        for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-10, msg=lambda m, k=key: f"{k}: {m}")


def test_backward_at_cut__plain_sum_equals_one_summed_loss() -> None:
    client, server, x, y = parts()
    surrogate = GatedAttentionCEM(8).double()
    modules = copy.deepcopy((client, server, surrogate))
    z = modules[0](x)
    (nn.functional.cross_entropy(modules[1](z), y) + LAMBDA * modules[2](z, y).rob_loss).backward()
    z = client(x)
    feature = detach_at_cut(z)
    task_loss = nn.functional.cross_entropy(server(feature), y)
    rob_loss = surrogate(feature, y).rob_loss
    backward_at_cut(z, feature, task_loss, rob_loss, lambd=LAMBDA, estimator=surrogate, plain_sum=True)
    for ours, theirs in zip((client, server, surrogate), modules, strict=True):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-10)


def test_backward_at_cut__gradients_accumulate() -> None:
    client, server, x, y = parts()
    surrogate = GatedAttentionCEM(8).double()
    for _ in range(2):
        z = client(x)
        feature = detach_at_cut(z)
        task_loss = nn.functional.cross_entropy(server(feature), y)
        backward_at_cut(z, feature, task_loss, surrogate(feature, y).rob_loss, lambd=1.0, estimator=surrogate)
        if _ == 0:
            once = [p.grad.clone() for m in (client, server, surrogate) for p in m.parameters()]
    twice = [p.grad for m in (client, server, surrogate) for p in m.parameters()]
    for a, b in zip(once, twice, strict=True):
        torch.testing.assert_close(2 * a, b)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_backward_at_cut__nonfinite_surrogate_is_left_out_and_reported(where: str) -> None:
    client, server, x, y = parts()
    scale = nn.Parameter(torch.ones((), dtype=torch.float64))
    z = client(x)
    feature = detach_at_cut(z)
    bad = feature.sum() * scale * torch.nan if where == "loss" else (feature.square().sum() * 0).sqrt() * scale
    skipped = backward_at_cut(
        z, feature, nn.functional.cross_entropy(server(feature), y), bad, lambd=LAMBDA, estimator=[scale]
    )
    assert bool(skipped)
    alone, alone_server, *_ = parts()
    nn.functional.cross_entropy(alone_server(alone(x)), y).backward()
    for p, q in zip(client.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    assert scale.grad == 0


@pytest.mark.parametrize("lambd", [float("nan"), float("inf"), -0.1])
def test_backward_at_cut__an_impossible_weight_is_refused_before_any_gradient(lambd: float) -> None:
    # broke: NaN in every gradient of the client, and nothing reported as left out
    client = torch.nn.Linear(4, 3)
    z = client(torch.rand(5, 4))
    feature = detach_at_cut(z)
    with pytest.raises(ValueError, match="lambd must be a finite number from 0 on"):
        backward_at_cut(z, feature, feature.sum(), feature.square().sum(), lambd=lambd)
    assert client.weight.grad is None and feature.grad is None


def test_backward_at_cut__a_feature_that_is_not_a_leaf_is_refused() -> None:
    client, server, x, y = parts()
    z = client(x)
    with pytest.raises(ValueError, match="detach_at_cut"):
        backward_at_cut(z, z, nn.functional.cross_entropy(server(z), y), z.sum() * 0, lambd=1.0)
