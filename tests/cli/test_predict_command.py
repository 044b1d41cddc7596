"""``attention-cem predict``; that it predicts is tested in tests/shipping."""

from __future__ import annotations

import pytest
from PIL import Image

from attention_cem.cli.main import main


@pytest.fixture
def image(tmp_path):
    Image.new("RGB", (16, 16)).save(tmp_path / "image.png")
    return str(tmp_path / "image.png")


def predict(image, tmp_path, server, *options):
    return main(["predict", image, "--server", server, "--bundle", str(tmp_path / "bundle"), *options])


def test_predict__refuses_to_send_features_in_the_clear(image, tmp_path, capsys):
    assert predict(image, tmp_path, "http://example.org:8080") == 2
    assert "is not encrypted" in capsys.readouterr().err


def test_predict__missing_things_are_named_in_one_line(image, tmp_path, capsys):
    assert predict(image, tmp_path, "http://127.0.0.1:1") == 2
    assert "manifest.json is missing" in capsys.readouterr().err
    assert predict(str(tmp_path / "absent.png"), tmp_path, "http://127.0.0.1:1") == 2
    errors = capsys.readouterr().err
    assert "neither a file nor a folder" in errors and errors.count("\n") == 1
    assert predict(image, tmp_path, "http://127.0.0.1:1", "--token-file", str(tmp_path / "absent")) == 2
    assert "token file" in capsys.readouterr().err


def test_predict__a_place_for_the_results_that_is_none_is_refused_in_one_line(image, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    for out, told in (
        ("folder", "folder is a folder, expected a file; name a file, in it or elsewhere, with -o"),
        ("image.png/x", "image.png/x cannot be made: image.png is a file; name another place with -o"),
    ):
        assert predict(image, tmp_path, "http://127.0.0.1:1", "-o", out) == 2
        assert capsys.readouterr().err == f"attention-cem predict: error: {told}\n"
