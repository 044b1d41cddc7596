"""The results file: what counts as answered, what is tried again, what is never overwritten."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from attention_cem.shipping import RemoteClassifier, predict_files
from attention_cem.shipping.preprocessing import find_images


class Answering:
    """A wire that always answers, and counts the images it was sent."""

    def __init__(self):
        self.images = 0

    def infer(self, model, z, request_id, timeout, server_sha256=None):
        self.images += len(z)
        return np.zeros((len(z), 4), np.float32)

    def close(self):
        pass


def photo(path):
    Image.new("RGB", (16, 16)).save(path)


@pytest.fixture
def folder(tmp_path):
    """Two images and one file that is none."""
    (tmp_path / "images").mkdir()
    for name in ("a.png", "c.png"):
        photo(tmp_path / "images" / name)
    (tmp_path / "images" / "b.png").write_bytes(b"no image")
    return tmp_path / "images"


def predict(bundle, folder, out):
    wire = Answering()
    result = predict_files(RemoteClassifier(bundle, wire, batch_size=2), find_images([folder]), out, workers=1)
    return result, wire


def lines(out):
    return {line["file"].rsplit("/", 1)[-1]: line for line in map(json.loads, out.read_text().splitlines()[1:])}


def test_streaming__a_file_that_could_not_be_read_is_not_answered(bundle, folder, tmp_path):
    result, _ = predict(bundle, folder, tmp_path / "out.jsonl")
    assert (result.answered, result.before, result.unreadable) == (2, 0, 1)


def test_streaming__what_could_not_be_read_is_tried_again_and_has_one_line(bundle, folder, tmp_path):
    out = tmp_path / "out.jsonl"
    predict(bundle, folder, out)
    result, wire = predict(bundle, folder, out)
    assert (result.answered, result.before, result.unreadable) == (0, 2, 1) and wire.images == 0
    assert len(out.read_text().splitlines()) == 4 and "error" in lines(out)["b.png"]
    photo(folder / "b.png")
    result, wire = predict(bundle, folder, out)
    assert (result.answered, result.before, result.unreadable) == (1, 2, 0) and wire.images == 1
    assert len(out.read_text().splitlines()) == 4 and "label" in lines(out)["b.png"]


def test_streaming__what_is_said_of_files_not_asked_for_stays(bundle, folder, tmp_path):
    out = tmp_path / "out.jsonl"
    predict(bundle, folder, out)
    before = out.read_bytes()
    (folder / "b.png").unlink()
    result, _ = predict(bundle, folder, out)
    assert (result.answered, result.before, result.unreadable) == (0, 2, 0)
    assert out.read_bytes() == before


def test_streaming__dropping_an_error_keeps_links_and_permissions(bundle, folder, tmp_path):
    real, out = tmp_path / "real.jsonl", tmp_path / "out.jsonl"
    out.symlink_to(real)
    predict(bundle, folder, out)
    real.chmod(0o600)
    photo(folder / "b.png")
    predict(bundle, folder, out)
    assert out.is_symlink() and real.stat().st_mode & 0o777 == 0o600 and "label" in lines(real)["b.png"]
    assert not list(tmp_path.glob(".*.part"))


def test_streaming__a_foreign_file_without_line_break_is_left_alone(bundle, folder, tmp_path):
    out = tmp_path / "token"
    out.write_text("secret")
    with pytest.raises(ValueError, match="holds no predictions; name another file"):
        predict(bundle, folder, out)
    assert out.read_text() == "secret"


def test_streaming__a_first_line_cut_short_is_written_anew(bundle, folder, tmp_path):
    out = tmp_path / "out.jsonl"
    predict(bundle, folder, out)
    out.write_bytes(out.read_bytes()[:30])
    assert predict(bundle, folder, out)[0].answered == 2
    assert json.loads(out.read_text().splitlines()[0])["format"] == "attention-cem/predictions"


def test_streaming__a_second_predict_on_the_same_file_is_refused_and_loses_nothing(bundle, folder, tmp_path):
    out, refusals = tmp_path / "out.jsonl", []
    predict(bundle, folder, out)
    photo(folder / "b.png")

    class Overtaken(Answering):
        def infer(self, model, z, request_id, timeout, server_sha256=None):
            try:
                predict(bundle, folder, out)
            except ValueError as error:
                refusals.append(str(error))
            return super().infer(model, z, request_id, timeout, server_sha256)

    predict_files(RemoteClassifier(bundle, Overtaken()), find_images([folder]), out, workers=1)
    assert refusals == [f"{out} is being written by another predict; wait, or name another file"]
    assert len(out.read_text().splitlines()) == 4 and "label" in lines(out)["b.png"]
    assert predict(bundle, folder, out)[0].before == 3


def test_streaming__a_line_nested_too_deeply_is_no_prediction(bundle, folder, tmp_path):
    out = tmp_path / "out.jsonl"
    predict(bundle, folder, out)
    out.write_bytes(out.read_bytes() + b"[" * 100_000 + b"\n")
    with pytest.raises(ValueError, match="line 5, is not a JSON object; name another file"):
        predict(bundle, folder, out)
