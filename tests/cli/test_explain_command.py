import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from attention_cem.cli.main import main


def test_explain__draws_the_configured_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "charts" / "p.svg"
    arguments = ["--out", str(out), "--data.options.size", "16", "--model.name", "tiny_cnn", "--train.batch_size", "32"]
    assert main(["explain", *arguments, "--surrogate.name", "slot_mixture"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert "(32, 3, 16, 16)" in out.read_text() and "似然" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--image-shape", "32"], "--image-shape must be three whole numbers"),
        (["--classes", "many"], "--classes"),
        (["--surrogate.nam", "x"], "did you mean 'surrogate.name'"),
        (["--surrogate.name", "slotmixture", "--surrogate.lambd", "1"], "did you mean 'slot_mixture'"),
        (["--data.name", "lfw158", "--data.root", "absent"], "says. To draw without the data give --image-shape"),
        (["--config", "absent.toml"], "cannot read the configuration"),
        (["--out", "."], ". is a folder, expected a file; name a file, in it or elsewhere, with --out"),
    ],
)
def test_explain__a_wrong_request_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--model.name", "tiny_cnn", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("attention-cem explain: error: ") and message in error and error.count("\n") == 1


def test_explain__the_preset_is_drawn_as_it_acts_and_legibly(tmp_path: Path) -> None:
    # broke: a term of the loss stood between z and what is sent, in letters of 4 px, and blindness nowhere
    out = tmp_path / "p.svg"
    more = ["--defence.local_dp.epsilon", "8", "--defence.local_dp.clip_norm", "1", "--defence.local_dp.delta", "1e-6"]
    more += ["--defence.distance_correlation.weight", "0.1"]
    preset = Path(__file__).parents[2] / "configs" / "cifar10-sound.toml"
    assert main(["explain", "--config", str(preset), "--out", str(out), *more]) == 0
    texts = list(ElementTree.fromstring(out.read_text()).iter("{http://www.w3.org/2000/svg}text"))
    place = {element.text or "": float(element.attrib["x"]) for element in texts}
    assert place["Client"] == place["blind to 4×4 waves"]
    assert place["Loss"] == place["+ distance correlation"] > place["Server"]
    assert "What the attacker sees" in place and "+ 512 random features cos(P·z)" in place
    assert place["Defences"] == place["gaussian noise (σ 0.025)"] == place["local dp (epsilon 8, clip_norm 1, …)"]
    assert min(float(element.attrib["font-size"]) for element in texts) >= 9


def test_explain__no_classes_is_not_taken_for_those_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--model.name", "tiny_cnn", "--classes", "0", "--out", str(tmp_path / "p.svg")]) == 2
    assert "num_classes must be at least 1, got 0" in capsys.readouterr().err
