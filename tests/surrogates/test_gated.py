import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem import GatedAttentionCEM
from attention_cem.surrogates.gated import pooled_variance
from attention_cem.surrogates.segments import class_sum, segment_classes
from attention_cem.testing import SurrogateContract
from attention_cem.testing.plain_loops import gated_loop
from tests.surrogates.helpers import LABELS, assert_equals_loop, features

FORMS = ["per_dim", "trace"]


class TestGatedPerDimContract(SurrogateContract):
    def make(self) -> GatedAttentionCEM:
        return GatedAttentionCEM(6, form="per_dim")


class TestGatedTraceContract(SurrogateContract):
    def make(self) -> GatedAttentionCEM:
        return GatedAttentionCEM(6, form="trace")


@settings(deadline=None, max_examples=40)
@given(LABELS, st.integers(0, 5), st.sampled_from(FORMS), st.sampled_from([None, "raw", "normed"]))
def test_gated__equals_the_plain_loop(labels: list[int], seed: int, form: str, statistics_on: str | None) -> None:
    torch.manual_seed(0)
    surrogate = GatedAttentionCEM(5, form=form, statistics_on=statistics_on).double()
    assert_equals_loop(surrogate, gated_loop, *features(labels, 5, seed))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels", [[], [4], [4] * 5, list(range(9)), [1, 1, 2]])
def test_gated__equals_the_plain_loop_at_the_edges(form: str, labels: list[int]) -> None:
    surrogate = GatedAttentionCEM(5, form=form).double()
    assert_equals_loop(surrogate, gated_loop, *features(labels, 5, 0))


def test_gated__worked_example_of_the_documents_every_intermediate() -> None:
    # Six digits, computed exactly; the figures printed in the document itself are wrong.
    surrogate = GatedAttentionCEM(2, form="trace", threshold=0.02, eps=1e-6, hidden=2, layer_norm=False).double()
    with torch.no_grad():
        surrogate.pooling.value_and_gate.weight.copy_(torch.cat([torch.eye(2), torch.eye(2) / 2]))
        surrogate.pooling.score.weight.fill_(1)
    z = torch.tensor([[0, 0], [0.2, 0.1], [-0.1, 0.05], [1, 1], [0.9, 1.1], [1.2, 0.8]], dtype=torch.float64)
    y = torch.tensor([1, 1, 1, 2, 2, 2])
    segments = segment_classes(y)
    logits = surrogate.pooling.logits(z)
    weight = surrogate.pooling(z, segments)
    mean = class_sum(weight[:, None] * z, segments.row, segments.num_rows)[:2]
    variance = pooled_variance(weight, z, segments, "trace")[:2, 0]
    output = surrogate(z, y)

    def close(value: torch.Tensor, expected: list[float]) -> None:
        torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=5e-7)

    close(logits, [0, 0.154698, -0.023297, 0.948123, 0.945025, 0.935805])
    close(weight, [0.318038, 0.371247, 0.310714, 0.335046, 0.334010, 0.330944])
    close(mean.flatten(), [0.043178, 0.052660, 1.032788, 0.967212])
    torch.testing.assert_close(variance, torch.tensor([0.01780883, 0.03100565], dtype=torch.float64), rtol=0, atol=5e-9)
    close(output.diagnostics["class_loss"][:2], [0, 0.438419])
    assert output.rob_loss.item() == pytest.approx(0.2192096, abs=5e-8)


def test_gated__layer_norm_makes_the_penalty_blind_to_scale() -> None:
    # The defect of the per_dim form as written: shrinking z ten times changes nothing.
    torch.manual_seed(0)
    surrogate = GatedAttentionCEM(8).double()
    z, y = torch.randn(20, 8).double(), torch.arange(20) % 2
    torch.testing.assert_close(surrogate(z, y).rob_loss, surrogate(z / 10, y).rob_loss, rtol=1e-2, atol=0)


def test_gated__effective_samples_of_uniform_weights_is_the_class_size() -> None:
    surrogate = GatedAttentionCEM(4)
    torch.nn.init.zeros_(surrogate.pooling.score.weight)
    output = surrogate(torch.randn(12, 4), torch.arange(12) % 2)
    assert output.diagnostics["effective_samples"].item() == pytest.approx(6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"form": "sum"}, "form.*'sum'"),
        ({"reg_strength": -1}, "reg_strength.*-1"),
        ({"threshold": 0.0}, "threshold.*0.0"),
        ({"hidden": 0}, "hidden.*0"),
        ({"statistics_on": "half"}, "statistics_on.*'half'"),
    ],
)
def test_gated__bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GatedAttentionCEM(4, **arguments)
