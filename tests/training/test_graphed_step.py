import copy
from pathlib import Path

import pytest
import torch

from attention_cem.defences import build_stack, model_context
from attention_cem.splitting import build_split_model
from attention_cem.surrogates import SlotMixtureCEM, build_surrogate, followed_solution, surrogate_names
from attention_cem.training import train
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.config import SurrogateConfig, TrainConfig
from attention_cem.training.graphed_step import GraphedStep
from attention_cem.training.optimisers import ESTIMATOR, TASK, build_optimiser, set_lr
from attention_cem.training.randomness import seed_stream
from attention_cem.training.step import StepSettings, TrainingStep

from .helpers import SURROGATES, tiny_config, with_surrogate


def test_graphed_step__is_refused_on_the_cpu() -> None:
    model = build_split_model("tiny_cnn", 4, (3, 16, 16))
    optimiser = build_optimiser(model.parameters(), [], TrainConfig(), SurrogateConfig())
    step = TrainingStep(model, build_stack([]), None, optimiser, StepSettings())
    with pytest.raises(ValueError, match="the model is on cpu"):
        GraphedStep(step)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimiser_name", ["sgd", "adamw"])
@pytest.mark.parametrize("name", surrogate_names())
def test_graphed_step__trains_as_the_plain_step_does(
    name: str, optimiser_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same batches, same noise, a step size and a λ that change while the graph is replayed.

    In float64, so that rounding cannot hide a difference or look like one; both with the optimiser that can be recorded
    (torch's AdamW then counts its steps in float32, which alone changes weights by 1e-6).
    """
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = build_split_model("tiny_cnn", 4, (3, 16, 16)).to(device).double().train()
    surrogate = build_surrogate(
        name, feature_dim=8 * 4 * 4, num_classes=4, reg_strength=0.1, **SURROGATES.get(name, {})
    ).to(device)
    surrogate = surrogate.double()
    # a replayed step leaves the rare work to `maintain`, which the trainer calls; here neither way does it
    monkeypatch.setattr(SlotMixtureCEM, "_maintain_if_due", lambda self, z: None)
    monkeypatch.setattr(followed_solution, "is_due", lambda step, every: False)
    if surrogate.needs_fit:
        surrogate.fit(torch.randn(80, 128, device=device, dtype=torch.float64), torch.arange(80, device=device) % 4)
    train_config = TrainConfig(optimiser=optimiser_name, lr=0.001)
    penalty = {"name": "linear_leakage", "weight": 0.1, "noise_sigma": 0.05, "random_features": 8, "followed": True}
    penalty["slots"] = 4
    context = model_context(model.client, (8, 4, 4), (3, 16, 16))
    results = []
    for recorded in (False, True):
        own_model, own_surrogate = copy.deepcopy((model, surrogate))
        stack = build_stack([{"name": "gaussian_noise", "sigma": 0.05}, penalty], context).to(device).double()
        optimiser = build_optimiser(
            own_model.parameters(), own_surrogate.parameters(), train_config, SurrogateConfig(), recorded=True
        )
        step = TrainingStep(own_model, stack, own_surrogate, optimiser, StepSettings())
        call = GraphedStep(step) if recorded else step
        for number in range(20):
            generator = torch.Generator(device).manual_seed(number)
            images = torch.rand(16, 3, 16, 16, generator=generator, device=device, dtype=torch.float64)
            labels = torch.arange(16, device=device) % 4
            set_lr(optimiser, TASK, 0.001 * (1 + number % 3))
            set_lr(optimiser, ESTIMATOR, 0.0005)
            step.lambd.fill_(0.01 * number)
            seed_stream(device, "step", number)
            call(images, labels, SurrogateMode.OBSERVE if number < 8 else SurrogateMode.ACTIVE)
        results.append((own_model.state_dict(), step.meter.means()))
    (plain, plain_means), (graphed, graphed_means) = results
    for key, value in plain.items():
        torch.testing.assert_close(graphed[key], value, rtol=1e-6, atol=1e-8, msg=lambda m, k=key: f"{k}: {m}")
    assert graphed_means["train_loss"] == pytest.approx(plain_means["train_loss"], rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("cuda_graph", ["off", "on"])
def test_train__on_cuda(tmp_path: Path, cuda_graph: str) -> None:
    overrides = with_surrogate("slot_mixture") | {"run__device": "cuda", "train__cuda_graph": cuda_graph}
    result = train(tiny_config(tmp_path / "run", **overrides | {"data__options__num_train": 320}))
    assert len(result.metrics) == 3 and result.metrics[-1]["rob_loss"] is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_train__on_cuda_a_recorded_hybrid_is_compiled_and_finds_what_the_plain_one_does(tmp_path: Path) -> None:
    """With small steps: with those of the tiny run, rounding alone halves or doubles the loss of its second epoch."""
    common = {"run__device": "cuda", "train__cuda_graph": "on", "data__options__num_train": 320, "train__lr": 0.001}
    plain, compiled = (
        train(tiny_config(tmp_path / name, **with_surrogate("hybrid") | common | {"train__compile": compile})).metrics
        for name, compile in (("plain", False), ("compiled", True))
    )
    for before, after in zip(plain, compiled, strict=True):
        assert after["rob_loss"] == pytest.approx(before["rob_loss"], rel=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_train__on_cuda_a_recorded_penalty_is_compiled_and_finds_what_the_plain_one_does(tmp_path: Path) -> None:
    penalty = {"weight": 0.3, "random_features": 8, "followed": True, "ramp_steps": 2}
    common = {f"defence__linear_leakage__{key}": value for key, value in penalty.items()}
    common |= {"run__device": "cuda", "train__cuda_graph": "on", "data__options__num_train": 320, "train__lr": 0.001}
    plain, compiled = (
        train(tiny_config(tmp_path / name, **common | {"train__compile": compile})).metrics[-1]
        for name, compile in (("plain", False), ("compiled", True))
    )
    assert compiled["penalty.linear_leakage"] == pytest.approx(plain["penalty.linear_leakage"], rel=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("metric", ["ssim", "mse"])
def test_train__on_cuda_a_recorded_adversary_is_compiled_and_learns_as_the_plain_one_does(
    tmp_path: Path, metric: str
) -> None:
    """Losses epoch by epoch: plain in full precision, and compiled in bf16, as a recorded step has it."""
    adversary = {"weight": 0.3, "metric": metric, "width": 16, "blocks": 1}
    common = {f"defence__adversarial_inverter__{key}": value for key, value in adversary.items()}
    common |= {"run__device": "cuda", "data__options__num_train": 320, "train__lr": 0.001}
    recorded = {"train__cuda_graph": "on", "train__compile": True}
    plain, compiled = (
        train(tiny_config(tmp_path / name, **common | more)).metrics
        for name, more in (("plain", {"train__cuda_graph": "off", "train__precision": "fp32"}), ("compiled", recorded))
    )
    for before, after in zip(plain, compiled, strict=True):
        for value in ("adversary.adversarial_inverter", "penalty.adversarial_inverter"):
            assert after[value] == pytest.approx(before[value], rel=0.1, abs=2e-3)
