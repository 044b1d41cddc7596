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
        (["--data.name", "lfw158", "--data.root", "absent"], "give --image-shape and --classes"),
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
