import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import torch

from attention_cem.studies.attacker_stages import attacker_stages
from attention_cem.studies.flow_chart import WIDTH, draw_flow_chart
from attention_cem.studies.pipeline import Pipeline, describe_pipeline
from attention_cem.studies.surrogate_stages import stages_of
from attention_cem.studies.svg import Svg, text_width
from attention_cem.surrogates import build_surrogate
from attention_cem.surrogates.leakage_penalty import LinearLeakagePenalty
from attention_cem.training import ConfigError, load_config

SVG = "{http://www.w3.org/2000/svg}"


def pipeline(surrogate: str, **more: Any) -> Pipeline:
    overrides = {"data.name": "cifar10", "model.name": "tiny_cnn", "surrogate.name": surrogate, **more}
    return describe_pipeline(load_config(overrides=overrides))


@pytest.mark.parametrize("surrogate", ["none", "slot_cross", "slot_mixture", "gated", "kmeans", "hybrid"])
def test_flow_chart__is_valid_svg_with_every_shape_and_both_languages(surrogate: str) -> None:
    described = pipeline(surrogate)
    root = ElementTree.fromstring(draw_flow_chart(described))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert "(128, 3, 32, 32)" in texts and "(128, 8, 8, 8)" in texts and "(128, 10)" in texts
    assert any("客户端" in text for text in texts)
    for stage in described.stages:
        assert stage.title in texts and stage.title_zh in texts
    assert len(described.stages) == (0 if surrogate == "none" else 4)


@pytest.mark.parametrize("surrogate", ["none", "slot_cross", "slot_mixture", "gated", "kmeans", "hybrid"])
def test_flow_chart__no_text_leaves_the_page_and_no_stage_text_its_box(surrogate: str) -> None:
    check_legible(draw_flow_chart(pipeline(surrogate)))


def check_legible(text: str) -> None:
    root = ElementTree.fromstring(text)
    for element in root.iter(f"{SVG}text"):
        size, x = float(element.attrib["font-size"]), float(element.attrib["x"])
        wide = text_width(element.text or "", size, mono="mono" in element.attrib["font-family"])
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[element.attrib["text-anchor"]]
        assert left >= 0 and left + wide <= WIDTH, element.text
        assert size >= 9, f"illegible: {element.text}"


LEAKAGE = {"surrogate.name": "none", "defence.linear_leakage.weight": 0.3, "defence.gaussian_noise.sigma": 0.1}
ATTACKERS: dict[str, dict[str, Any]] = {
    "random features": {"defence.linear_leakage.random_features": 32, "defence.linear_leakage.followed": True},
    "attention": {"defence.linear_leakage.random_features": 0, "defence.linear_leakage.slots": 8},
    "linear": {"defence.linear_leakage.random_features": 0, "defence.linear_leakage.ramp_steps": 0},
    "local": {"defence.linear_leakage.neighbourhood": 3, "defence.linear_leakage.target_size": 16},
    "beside a surrogate": {"surrogate.name": "slot_mixture", "surrogate.lambd": 1.0},
}


@pytest.mark.parametrize("kind", ATTACKERS)
def test_flow_chart__shows_the_attacker_a_client_is_trained_against(kind: str) -> None:
    """The default preset has no surrogate: a chart that says nothing is lowered would be wrong of it."""
    described = pipeline(**{"surrogate": "none", **LEAKAGE, **ATTACKERS[kind]})
    text = draw_flow_chart(described)
    assert len(described.attacker) == 4 and all(stage.title in text for stage in described.attacker)
    assert "is not lowered" not in text and "weight = 0.3" in text and "weight·∂share/∂z, merged at the cut" in text
    assert ("rob_loss" in text) is (kind == "beside a surrogate")
    assert ("attention of 4×4 regions" in text, "32 random features" in text) == (
        kind == "attention",
        kind == "random features",
    )
    assert ("following the client" in text) is (kind == "random features")
    check_legible(text)


def test_stages__the_attackers_shapes_are_those_of_its_buffers() -> None:
    penalty = LinearLeakagePenalty(0.1, 0.1, z_shape=(8, 4, 4), image_shape=(3, 8, 8), random_features=0, slots=4)
    sees, within, solved, recovered = (stage.shape for stage in attacker_stages(penalty, 16))
    assert solved == tuple(penalty.attacker.cov_xz.T.shape) == (sees[1], 3 * 8 * 8)
    assert sees == within == (16, 128 + 16 * 4) and recovered == (16, 192)


def test_flow_chart__names_from_a_configuration_cannot_inject_markup() -> None:
    described = pipeline("none")
    evil = Pipeline(**{**described.__dict__, "data": "<script>alert(1)</script>"})
    assert "<script>" not in draw_flow_chart(evil)


def test_stages__shapes_are_those_of_the_tensors() -> None:
    """The chart's claim against hooks on the running surrogate."""
    surrogate = build_surrogate("slot_cross", feature_dim=32, num_classes=4, reg_strength=0.1, num_slots=3)
    seen = {}
    for name in ("slot_attention", "cross_attention", "dimension_gate"):
        getattr(surrogate, name).register_forward_hook(
            lambda module, inputs, output, name=name: seen.update({name: tuple(output.shape)})
        )
    surrogate(torch.randn(16, 32), torch.arange(16) % 4)
    slots, enriched, statistics, per_class = (stage.shape for stage in stages_of(surrogate, 16, 4))
    real = {name: tuple(size for size in shape) for name, shape in seen.items()}
    assert enriched == real["cross_attention"] and per_class == (4,)
    # The implementation works on rows for absent classes too; what the chart shows are the four classes there are.
    assert slots[1:] == real["slot_attention"][1:] and statistics[1:] == real["dimension_gate"][1:]


def test_stages__memory_and_slots_of_the_mixture_are_its_buffers() -> None:
    surrogate: Any = build_surrogate("slot_mixture", feature_dim=32, num_classes=4, reg_strength=0.1, bank_size=16)
    memory, assigned, mixture, likelihood = (stage.shape for stage in stages_of(surrogate, 8, 4))
    assert memory == tuple(surrogate.memory.feature[:4].shape) and mixture == tuple(surrogate.slot_mean[:4].shape)
    assert assigned == (4, 16, surrogate.num_slots) and likelihood == (8,)


def test_stages__a_surrogate_of_ones_own_has_one_stage() -> None:
    class Own:
        kind = "my_own"

    assert [stage.title for stage in stages_of(Own(), 8, 4)] == ["my_own"]


def test_describe_pipeline__given_shapes_need_no_data() -> None:
    config = load_config(overrides={"data.name": "lfw158", "data.root": "absent", "model.name": "tiny_cnn"})
    described = describe_pipeline(config, image_shape=(3, 64, 64), num_classes=158)
    assert described.image_shape == (3, 64, 64) and described.num_classes == 158


def test_describe_pipeline__what_cannot_be_built_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'slot_mixture'"):
        pipeline("slotmixture", **{"surrogate.lambd": 1.0})


def test_svg__long_text_is_made_smaller() -> None:
    picture = Svg(100, 100, "t")
    picture.text(50, 50, "x" * 100, size=20, widest=100)
    size = re.search(r'font-size="([0-9.]+)"', picture.document())
    assert size is not None and text_width("x" * 100, float(size[1])) <= 100.5
