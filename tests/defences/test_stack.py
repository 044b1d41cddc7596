import copy
import itertools
import json

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from attention_cem.defences import (
    AdversarialInverter,
    ChannelPruning,
    DefenceStack,
    DistanceCorrelation,
    FeatureDropout,
    GaussianNoise,
    InformationBottleneck,
    LaplaceNoise,
    LocalDP,
    PenaltyDefence,
    TopKPruning,
    build_stack,
    model_context,
)


def every_defence():
    torch.manual_seed(0)
    return [
        LocalDP(epsilon=4.0, clip_norm=2.0),
        TopKPruning(keep=0.5),
        DistanceCorrelation(weight=0.1),
        FeatureDropout(p=0.2),
        ChannelPruning({"0": 4}, share=0.5, z_layer="0"),
        LaplaceNoise(scale=0.1),
        AdversarialInverter(0.5, (4, 4, 4), (3, 16, 16), width=4, blocks=0),
        GaussianNoise(sigma=0.1),
        InformationBottleneck((4, 4, 4), weight=0.01),
    ]


def seeded(stack, z, seed=0):
    torch.manual_seed(seed)
    return stack(z)


def test_stack__order_is_the_chain_whatever_order_was_given():
    noise, drop, keep, dp = GaussianNoise(0.5), FeatureDropout(0.3), TopKPruning(0.5), LocalDP(8.0, 3.0)
    z = torch.randn(5, 40)
    torch.manual_seed(0)
    expected = dp(keep(drop(noise(z))))
    for given in itertools.permutations([noise, drop, keep, dp]):
        assert torch.equal(seeded(DefenceStack(given), z), expected)
    names = [entry["name"] for entry in DefenceStack(every_defence()).describe()["defences"]]
    assert names == [
        "adversarial_inverter",
        "distance_correlation",
        "information_bottleneck",
        "gaussian_noise",
        "laplace_noise",
        "dropout",
        "channel_pruning",
        "top_k_pruning",
        "local_dp",
    ]


def test_stack__trainer_and_validator_release_the_same():
    stack = DefenceStack(every_defence())
    z = torch.randn(6, 4, 4, 4)
    assert torch.equal(seeded(stack.train(), z), seeded(stack.eval(), z))
    assert not torch.equal(seeded(stack, z, 0), seeded(stack, z, 1))


def test_stack__empty_is_the_identity():
    z = torch.randn(3, 4)
    stack = DefenceStack()
    assert torch.equal(stack(z), z)
    assert stack.penalties(z, z, z) == {}
    assert stack.noise_std() == 0.0


class Recorder(PenaltyDefence):
    name = "recorder"
    weight = 3.0

    def term(self, x, z, y):
        self.seen = z
        return z.sum()

    def config(self):
        return {}

    def guarantee(self):
        return "none"


def test_stack__penalties_see_the_clean_feature_unless_they_ask_for_the_released_one():
    recorder = Recorder()
    stack = DefenceStack([GaussianNoise(1.0), recorder])
    z = torch.randn(3, 4)
    assert stack.penalties(z, z, z)["recorder"] == 3.0 * z.sum()
    assert torch.equal(recorder.seen, z)
    recorder.sees = "defended"
    stack.penalties(z, z, z)
    assert not torch.equal(recorder.seen, z)


def test_stack__clean_feature_includes_the_learned_layers_of_the_bottleneck():
    bottleneck, recorder = InformationBottleneck((4,), weight=1.0), Recorder()
    nn.init.constant_(bottleneck.mean_layer.bias, 2.0)
    stack = DefenceStack([recorder, bottleneck, GaussianNoise(1.0)])
    z = torch.randn(3, 4)
    stack.penalties(z, z, z)
    torch.testing.assert_close(recorder.seen, z + 2)
    torch.testing.assert_close(stack.emission(z), z + 2)


def test_stack__noise_variance_is_in_units_of_the_clean_feature():
    dp = LocalDP(epsilon=1.0, clip_norm=50.0)
    assert DefenceStack([GaussianNoise(0.3), LaplaceNoise(0.2)]).noise_variance() == pytest.approx(0.09 + 0.08)
    combined = DefenceStack([GaussianNoise(0.3), FeatureDropout(0.5), dp])
    assert combined.noise_variance() == pytest.approx(0.09 + dp.noise_variance() * 0.25)
    assert combined.noise_std() == pytest.approx((0.09 + dp.noise_variance() * 0.25) ** 0.5)


def test_stack__description_and_state_rebuild_it():
    stack = DefenceStack(every_defence())
    x, z = torch.rand(6, 3, 16, 16), torch.randn(6, 4, 4, 4)
    stack.train_adversaries(x, z)
    description = json.loads(json.dumps(stack.describe()))
    again = build_stack(description["defences"])
    again.load_state_dict(stack.state_dict())
    assert again.describe() == stack.describe()
    assert torch.equal(seeded(stack, z), seeded(again, z))
    assert all(entry["guarantee"] for entry in description["defences"])


def test_stack__model_context_spares_the_config_the_shapes():
    client = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.Sigmoid())
    context = model_context(client, (4, 4, 4), (3, 16, 16))
    configs = [
        {"name": "adversarial_inverter", "weight": 0.1, "width": 4, "blocks": 0},
        {"name": "channel_pruning", "share": 0.5},
        {"name": "information_bottleneck", "weight": 0.1},
    ]
    stack = build_stack(configs, context)
    assert stack(client(torch.rand(2, 3, 16, 16))).shape == (2, 4, 4, 4)
    assert "z_layer" not in model_context(nn.Linear(6, 5), (5, 5))


def test_stack__same_seed_same_noise_after_a_deep_copy():
    stack = DefenceStack([GaussianNoise(1.0), FeatureDropout(0.5)])
    stack.generator = torch.Generator().manual_seed(3)
    twin, z = copy.deepcopy(stack), torch.randn(2, 5)
    assert torch.equal(stack(z), twin(z))


class NoiseFromOutside(nn.Module):
    def __init__(self, stack):
        super().__init__()
        self.stack = stack

    def forward(self, z, *noise):
        return self.stack.release(z, noise)


def test_stack__exports_with_the_noise_as_inputs(tmp_path):
    # Random nodes of a runtime can be predictable; a client may draw its own noise.
    stack = DefenceStack(every_defence()).eval()
    draws = {"normal": torch.randn, "uniform": torch.rand}
    inputs = (torch.randn(2, 4, 4, 4), *(draws[kind](2, 4, 4, 4) for kind in stack.draws()))
    path = tmp_path / "stack.onnx"
    torch.onnx.export(NoiseFromOutside(stack).eval(), inputs, path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    feed = {node.name: value.numpy() for node, value in zip(session.get_inputs(), inputs, strict=True)}
    released = torch.from_numpy(session.run(None, feed)[0])
    torch.testing.assert_close(released, stack.release(inputs[0], inputs[1:]), rtol=1e-4, atol=1e-5)


def test_stack__refuses_noise_that_does_not_fit():
    stack, z = DefenceStack([LaplaceNoise(1.0)]), torch.zeros(2, 3)
    for noise, message in (
        ([z], "more noise is needed"),
        ([z, z, z], "1 supplied draws were not used"),
        ([z, z[:1]], r"must have the shape \(2, 3\), received \(1, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            stack.release(z, noise)


def test_stack__refuses_strangers_and_twins():
    with pytest.raises(ValueError, match="holds Defence objects, received Linear"):
        DefenceStack([nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="received twice: gaussian_noise"):
        DefenceStack([GaussianNoise(0.1), GaussianNoise(0.2)])


def test_stack__exports_to_onnx_with_live_noise(tmp_path):
    stack = DefenceStack(every_defence()).eval()
    path = tmp_path / "stack.onnx"
    torch.onnx.export(stack, (torch.randn(2, 4, 4, 4),), path, dynamo=True, input_names=["z"], verbose=False)
    session = onnxruntime.InferenceSession(path)
    z = np.random.default_rng(0).normal(size=(2, 4, 4, 4)).astype(np.float32)
    first, second = (session.run(None, {"z": z})[0] for _ in range(2))
    assert first.shape == z.shape
    assert np.isfinite(first).all()
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("defence", "statistic", "expected", "tolerance"),
    [
        (GaussianNoise(0.3), lambda out, z: (out - z).std(), 0.3, 0.02),
        (LaplaceNoise(0.3), lambda out, z: np.abs(out - z).mean(), 0.3, 0.02),
        (FeatureDropout(0.3), lambda out, z: (out == 0).mean(), 0.3, 0.02),
        (TopKPruning(0.25), lambda out, z: (out != 0).mean(), 0.25, 0.0),
    ],
)
def test_stack__exported_client_does_what_the_trainer_saw(tmp_path, defence, statistic, expected, tolerance):
    z = np.random.default_rng(0).normal(size=(200, 256)).astype(np.float32)
    path = tmp_path / "stack.onnx"
    stack = DefenceStack([defence]).eval()
    torch.onnx.export(stack, (torch.from_numpy(z),), path, dynamo=True, input_names=["z"], verbose=False)
    exported = onnxruntime.InferenceSession(path).run(None, {"z": z})[0]
    trained = seeded(stack.train(), torch.from_numpy(z)).numpy()
    assert statistic(exported, z) == pytest.approx(expected, rel=tolerance)
    assert statistic(trained, z) == pytest.approx(expected, rel=tolerance)
