from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attention_cem.data import MissingDataError, cifar, cifar_binary, load_data
from attention_cem.data.cifar_binary import CIFAR10_BINARY, CIFAR100_BINARY, load_binary
from attention_cem.data.cifar_names import (
    CIFAR100_COARSE_NAMES,
    CIFAR100_NAMES,
    CIFAR100_SUPERCLASSES,
    coarse_of_fine,
)

# The official layouts with few records, so that a test archive is small.
SMALL10 = replace(CIFAR10_BINARY, records_per_train_file=4, records_per_test_file=3)
SMALL100 = replace(CIFAR100_BINARY, records_per_train_file=6, records_per_test_file=3)


def binary_files(layout, seed=0) -> tuple[dict[str, bytes], np.ndarray, np.ndarray]:
    """Make the files of a layout; also the training pixels and labels they hold."""
    generator = np.random.default_rng(seed)
    files, pixels, labels = {}, [], []
    for file in (*layout.train_files, *layout.test_files):
        n = layout.records_per_test_file if file in layout.test_files else layout.records_per_train_file
        x = generator.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
        y = generator.integers(0, len(layout.class_names), n).astype(np.uint8)
        head = y[:, None] if layout.label_bytes == 1 else np.stack([np.array(coarse_of_fine())[y], y], axis=1)
        files[file] = np.concatenate([head.astype(np.uint8), x.reshape(n, -1)], axis=1).tobytes()
        if file in layout.train_files:
            pixels.append(x)
            labels.append(y)
    return files, np.concatenate(pixels), np.concatenate(labels)


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"readme.html": b"about", **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("layout", [SMALL10, SMALL100])
@pytest.mark.parametrize("packed", [True, False])
def test_binary__archive_and_folder_give_the_pixels_written(tmp_path, layout, packed):
    files, pixels, labels = binary_files(layout)
    if packed:
        path = write_archive(tmp_path / layout.archive, layout.folder, files)
    else:
        path = tmp_path / layout.folder
        path.mkdir()
        for name, content in files.items():
            (path / name).write_bytes(content)
    data = load_binary(path, layout, "cifar")
    np.testing.assert_array_equal(data.train.images.numpy(), pixels)
    np.testing.assert_array_equal(data.train.labels.numpy(), labels)
    assert len(data.test) == 3
    assert list(tmp_path.iterdir()) == [path], "an archive must not be unpacked to disk"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop("data_batch_3.bin"), "data_batch_3.bin is missing"),
        (lambda files: files.update({"data_batch_2.bin": files["data_batch_2.bin"][:-1]}), "plain file of"),
        (lambda files: files.update({"test_batch.bin": b"\x0a" + files["test_batch.bin"][1:]}), "label 10"),
        (lambda files: files.update({"bomb": b"\0" * (2 << 20)}), "unexpected member"),
    ],
)
def test_binary__hostile_archives_are_refused(tmp_path, change, message):
    files, _, _ = binary_files(SMALL10)
    change(files)
    path = write_archive(tmp_path / SMALL10.archive, SMALL10.folder, files)
    with pytest.raises(ValueError, match=message):
        load_binary(path, SMALL10, "cifar10")


def test_binary__member_names_that_climb_are_never_followed(tmp_path):
    files, _, _ = binary_files(SMALL10)
    path = write_archive(tmp_path / SMALL10.archive, f"../{SMALL10.folder}", files)
    with pytest.raises(ValueError, match="missing"):
        load_binary(path, SMALL10, "cifar10")
    assert list(tmp_path.iterdir()) == [path]


def test_binary__link_in_place_of_a_file_is_refused(tmp_path):
    path = tmp_path / SMALL10.archive
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{SMALL10.folder}/data_batch_1.bin")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(ValueError, match="one plain file"):
        load_binary(path, SMALL10, "cifar10")


def header(size: int, kind: bytes) -> bytes:
    """A tar header that claims this size; a negative one is written as GNU tar writes what is large."""
    raw = bytearray(tarfile.TarInfo("stranger").tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = size.to_bytes(12, "big", signed=True) if size < 0 else b"%011o\0" % size
    raw[148:157] = b" " * 8 + kind
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        # broke: 4 MB of archive took a gigabyte of memory, and 100 bytes kept the reader busy for ever
        (header(1 << 31, tarfile.XHDTYPE), "a header claims 2147483648 bytes"),
        (header(1 << 31, tarfile.GNUTYPE_LONGNAME), "a header claims 2147483648 bytes"),
        (2 * header(-1024, tarfile.REGTYPE), "unexpected member 'stranger' of -1024 bytes"),
        (2000 * header(0, tarfile.XHDTYPE), "damaged"),
    ],
)
def test_binary__a_header_cannot_ask_for_memory_or_time(tmp_path, headers, message):
    path = tmp_path / SMALL10.archive
    path.write_bytes(gzip.compress(headers + bytes(4096)))
    with pytest.raises(ValueError, match=message):
        load_binary(path, SMALL10, "cifar10")


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"\x1f\x8b\x08broken"])
def test_binary__broken_archive_is_refused(tmp_path, content):
    (tmp_path / SMALL10.archive).write_bytes(content)
    with pytest.raises(ValueError, match="damaged|missing"):
        load_binary(tmp_path / SMALL10.archive, SMALL10, "cifar10")


def test_binary__archive_cut_short_is_refused(tmp_path):
    files, _, _ = binary_files(SMALL10)
    path = write_archive(tmp_path / SMALL10.archive, SMALL10.folder, files)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ValueError, match="damaged"):
        load_binary(path, SMALL10, "cifar10")


def test_binary__contradicting_coarse_labels_are_refused(tmp_path):
    files, _, _ = binary_files(SMALL100)
    train = bytearray(files["train.bin"])
    train[0] = (train[0] + 1) % 20
    path = write_archive(tmp_path / SMALL100.archive, SMALL100.folder, files | {"train.bin": bytes(train)})
    with pytest.raises(ValueError, match="contradict"):
        load_binary(path, SMALL100, "cifar100")


@pytest.mark.parametrize(
    ("name", "pickled"),
    [("cifar10", "cifar-10-python.tar.gz"), ("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python")],
)
def test_cifar__python_version_is_refused_with_the_reason(tmp_path, name, pickled):
    (tmp_path / pickled).mkdir()
    with pytest.raises(MissingDataError, match=f"found {pickled}, which is refused.*pickle.*binary version"):
        load_data(name, tmp_path)


def test_cifar__coarse_labels_from_the_official_archive(tmp_path, monkeypatch):
    monkeypatch.setitem(cifar._LAYOUT, "cifar100", SMALL100)
    files, _, labels = binary_files(SMALL100)
    write_archive(tmp_path / SMALL100.archive, SMALL100.folder, files)
    coarse = load_data("cifar100_coarse", tmp_path)
    first_bytes = np.frombuffer(files["train.bin"], np.uint8).reshape(-1, 2 + cifar_binary.PIXEL_BYTES)[:, 0]
    assert coarse.train.labels.tolist() == first_bytes.tolist()
    assert torch.equal(load_data("cifar100", tmp_path).train.labels, torch.from_numpy(labels.astype(np.int64)))


def test_cifar_names__twenty_superclasses_of_five():
    assert len(set(CIFAR100_NAMES)) == 100
    assert list(CIFAR100_COARSE_NAMES) == sorted(CIFAR100_COARSE_NAMES)
    assert all(len(names) == 5 for names in CIFAR100_SUPERCLASSES.values())
    # Official pairs (coarse, fine) of the data set: cattle, dinosaur, apple, boy, aquarium fish, telephone, train.
    pairs = [(11, 19), (15, 29), (4, 0), (14, 11), (1, 1), (5, 86), (18, 90)]
    assert [(coarse_of_fine()[fine], fine) for _, fine in pairs] == pairs
