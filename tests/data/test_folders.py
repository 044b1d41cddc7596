from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attention_cem.data import Batches, MissingDataError, image_folder, load_data
from attention_cem.data.folder_layout import detect_layout


def paint(path: Path, value: int, size: tuple[int, int] = (20, 16)) -> None:
    """Save a flat picture whose red level tells it from the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 10, 200)).save(path)


def reds(images: torch.Tensor) -> list[int]:
    return images[:, 0, 4, 4].tolist()


@pytest.fixture
def faces(tmp_path) -> Path:
    for person, name in enumerate(["Ann", "Bob", "Cid"]):
        for i in range(10):
            paint(tmp_path / "faces" / name / f"{i}.png", person * 50 + i)
    return tmp_path / "faces"


@pytest.fixture
def tinyimagenet(tmp_path) -> Path:
    folder = tmp_path / "tiny-imagenet-200"
    lines = []
    for label, wnid in enumerate(["n01", "n02"]):
        for i in range(3):
            paint(folder / "train" / wnid / "images" / f"{wnid}_{i}.png", label * 100 + i, (64, 64))
        paint(folder / "val" / "images" / f"val_{label}.png", label * 100 + 50, (64, 64))
        lines.append(f"val_{label}.png\t{wnid}\t0\t0\t9\t9\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\ttabby\nn99\tother\n")
    return folder


def test_image_folder__classes_with_a_random_split(faces):
    data = image_folder(faces, size=16, test_fraction=0.2)
    assert detect_layout(faces) == "classes"
    assert data.class_names == ("Ann", "Bob", "Cid")
    assert data.test.labels.bincount().tolist() == [2, 2, 2]
    assert sorted(reds(data.train.images) + reds(data.test.images)) == [p * 50 + i for p in range(3) for i in range(10)]
    for part in (data.train, data.test):
        assert part.labels.tolist() == [red // 50 for red in reds(part.images)]
    other = image_folder(faces, size=16, split_seed=1)
    assert reds(other.test.images) != reds(data.test.images)
    assert reds(image_folder(faces, size=16).test.images) == reds(data.test.images)


@pytest.mark.parametrize("inner", ["faces/", ""])
def test_image_folder__facescrub_layout(tmp_path, inner):
    for i in range(5):
        paint(tmp_path / "facescrub" / "actors" / f"{inner}Bob" / f"{i}.jpg", 10)
        paint(tmp_path / "facescrub" / "actresses" / f"{inner}Ann" / f"{i}.jpeg", 200)
    data = load_data("facescrub", tmp_path)
    assert data.class_names == ("Ann", "Bob")
    assert data.image_shape == (3, 48, 48)
    assert len(data.train) == 8
    bright = (data.train.images[:, 0].float().mean((1, 2)) > 100).tolist()
    assert bright == [label == 0 for label in data.train.labels.tolist()]


def test_image_folder__tinyimagenet_layout(tinyimagenet):
    data = load_data("tinyimagenet", tinyimagenet.parent)
    assert data.class_names == ("goldfish", "tabby")
    assert reds(data.train.images) == [0, 1, 2, 100, 101, 102]
    assert (reds(data.test.images), data.test.labels.tolist()) == ([50, 150], [0, 1])
    assert data.image_shape == (3, 64, 64)


@pytest.mark.parametrize("line", ["../../secret.png\tn01\t0", "val_0.png\tn77\t0", "val_0.png", "val_0.exe\tn01"])
def test_image_folder__hostile_annotations_are_refused(tinyimagenet, line):
    (tinyimagenet / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(ValueError, match="line 1"):
        image_folder(tinyimagenet)


def test_image_folder__given_split(tmp_path):
    paint(tmp_path / "train" / "a" / "1.png", 1)
    paint(tmp_path / "train" / "b" / "1.png", 2)
    paint(tmp_path / "validate" / "b" / "1.png", 3)
    data = image_folder(tmp_path, size=8)
    assert (reds(data.train.images), reds(data.test.images), data.test.labels.tolist()) == ([1, 2], [3], [1])
    paint(tmp_path / "validate" / "c" / "1.png", 3)
    with pytest.raises(ValueError, match="has not: c"):
        image_folder(tmp_path)


def test_image_folder__given_split_without_test_images(tmp_path, tinyimagenet):
    paint(tmp_path / "pictures" / "train" / "a" / "1.png", 1)
    (tmp_path / "pictures" / "test" / "a").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"no test images in .*pictures/test; put .*or name .*pictures/train"):
        image_folder(tmp_path / "pictures", size=8)
    (tinyimagenet / "val" / "val_annotations.txt").write_text("")
    with pytest.raises(ValueError, match=r"no test images in .*val_annotations\.txt"):
        image_folder(tinyimagenet)


def test_image_folder__takes_the_central_square(tmp_path):
    picture = np.zeros((8, 24, 3), np.uint8)
    picture[:, 8:16] = 255
    for name in ("a/0", "a/1", "b/0", "b/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    data = image_folder(tmp_path, size=8, test_fraction=0.5)
    assert (data.train.images == 255).all()
    assert image_folder(tmp_path, size=8, test_fraction=0.5, channels=1).image_shape == (1, 8, 8)


def test_image_folder__cache_gives_the_same_pixels_without_decoding(faces, tmp_path, monkeypatch):
    plain = image_folder(faces, size=16)
    first = image_folder(faces, size=16, cache_folder=tmp_path / "cache")
    monkeypatch.setattr("attention_cem.data.folders.read_image_file", None)
    second = image_folder(faces, size=16, cache_folder=tmp_path / "cache")
    for data in (first, second):
        assert torch.equal(data.train.images, plain.train.images)
        assert torch.equal(data.test.images, plain.test.images)
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".npy"}
    batch = next(Batches(second.train, 8)(epoch=0))
    assert batch.images.shape == (8, 3, 16, 16)


def test_image_folder__changed_file_or_size_never_meets_an_old_cache(faces, tmp_path):
    cache = tmp_path / "cache"
    before = image_folder(faces, size=16, cache_folder=cache)
    paint(faces / "Ann" / "0.png", 255, (30, 30))
    paint(faces / "Bob" / "0.png", 255, (30, 30))
    after = image_folder(faces, size=16, cache_folder=cache)
    everything = [torch.cat([data.train.images, data.test.images]) for data in (before, after)]
    assert [images[:, 0].amax().item() for images in everything] == [109, 255]
    assert image_folder(faces, size=8, cache_folder=cache).image_shape == (3, 8, 8)


def test_image_folder__interrupted_cache_leaves_nothing_behind(faces, tmp_path):
    (faces / "Ann" / "3.png").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"3\.png"):
        image_folder(faces, size=16, cache_folder=tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npy"], "the test images, which are whole"


def test_image_folder__damaged_cache_is_named(faces, tmp_path):
    image_folder(faces, size=16, cache_folder=tmp_path / "cache")
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="delete it"):
        image_folder(faces, size=16, cache_folder=tmp_path / "cache")


def test_image_folder__every_damaged_file_is_listed(faces):
    for name in ("Ann/3.png", "Bob/4.png"):
        (faces / name).write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"2 of 30 images cannot be read; .*3\.png [^;]*; [^;]*4\.png"):
        image_folder(faces, size=16)


@pytest.mark.parametrize("cached", [False, True])
def test_image_folder__damaged_files_of_train_and_test_are_named_together(tmp_path, cached):
    # broke: only those of the training part were counted, and the rest came up after the repair
    for name in ("train/a/1", "train/b/1", "test/a/1", "test/b/1"):
        paint(tmp_path / "set" / f"{name}.png", 1)
    for name in ("train/a/1.png", "test/b/1.png"):
        (tmp_path / "set" / name).write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"2 of 4 images cannot be read; .*train/a/1\.png [^;]*; [^;]*test/b/1\.png"):
        image_folder(tmp_path / "set", size=8, cache_folder=tmp_path / "cache" if cached else None)


def test_image_folder__of_many_damaged_files_the_first_are_named_and_the_rest_counted(faces):
    for path in [*faces.glob("Ann/*.png"), faces / "Bob" / "1.png"]:
        path.write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"^11 of 30 images cannot be read.*; and 1 more$"):
        image_folder(faces, size=16)


def test_image_folder__bomb_is_refused(faces):
    (faces / "Ann" / "0.png").write_bytes(b"P5 9000 9000 255\n")
    with pytest.raises(ValueError, match=r"0\.png: 9000×9000 pixels are over the limit"):
        image_folder(faces, size=16)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 4},
        {"size": "abc"},
        {"size": 16.5},
        {"size": True},
        {"channels": 2},
        {"channels": "three"},
        {"channels": [3]},
        {"test_fraction": 0.0},
        {"test_fraction": "abc"},
        {"test_fraction": float("nan")},
        {"test_fraction": 0.999},
        {"split_seed": "x"},
        {"split_seed": 1.5},
        {"cache_folder": 5},
        {"layout": "nonsense"},
        {"layout": 5},
    ],
    ids=str,
)
def test_image_folder__refuses(faces, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        image_folder(faces, **wrong)


def test_image_folder__empty_or_absent_folder(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(MissingDataError, match="class folders"):
            image_folder(folder)
    with pytest.raises(MissingDataError, match="facescrub"):
        load_data("facescrub", tmp_path)


def test_image_folder__a_class_of_pictures_that_are_not_read_is_not_lost(faces):
    # broke: a class of HEIC photos was left out without a word, and the classes after it were renumbered
    (faces / "Abe").mkdir()
    (faces / "Abe" / "1.HEIC").write_bytes(b"a photo")
    with pytest.raises(ValueError, match=r"'Abe' would be lost.*\.heic.*\.png.*convert"):
        image_folder(faces, size=16)
    (faces / "Abe" / "1.HEIC").rename(faces / "Abe" / "notes.txt")
    assert image_folder(faces, size=16).class_names == ("Ann", "Bob", "Cid")


def test_image_folder__a_single_class_is_refused(faces):
    # broke: a root one level too low or too high trained to 100 % on one class
    (faces.parent / "new").mkdir()
    (faces / "Ann").rename(faces.parent / "new" / "Ann")
    with pytest.raises(ValueError, match=r"a single class, 'Ann' with 10 training.*--data\.root.*too high or too low"):
        image_folder(faces.parent / "new", size=16)


@pytest.mark.parametrize("place", ["Ann/2024", "Bob/2023/may", "Dan/deep"])
@pytest.mark.parametrize("file", ["9.png", "9.HEIC"])
def test_image_folder__pictures_deeper_in_a_class_are_not_lost(faces, place, file):
    # broke: they were left out without a word, and with them a class that had no others
    paint(faces / place / "9.png", 7)
    (faces / place / "9.png").rename(faces / place / file)
    named = "/".join(place.split("/")[:2])
    with pytest.raises(ValueError, match=rf"pictures inside \S+/{named} would be lost"):
        image_folder(faces, size=16)


def test_image_folder__folders_in_a_class_without_pictures_do_not_matter(faces):
    paint(faces / "Ann" / ".thumbnails" / "1.png", 7)
    paint(faces / "Ann" / "notes" / ".hidden" / "1.png", 7)
    (faces / "Ann" / "notes" / "read.txt").write_text("hello")
    assert len(image_folder(faces, size=16).train) == 24


def test_load_data__image_folder_is_the_root_itself(faces):
    data = load_data("image_folder", faces, size=24, limit=12)
    assert (len(data.train), data.image_shape) == (12, (3, 24, 24))
