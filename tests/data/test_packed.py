from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from attention_cem.data import load_data, load_packed
from attention_cem.data.safe_files import decode_image, read_npz


def sheet(tiles: np.ndarray, per_row: int, image_format: str = "PNG") -> bytes:
    """Encode tiles (n, s, s, 3), n a multiple of per_row, as one picture."""
    n, size = tiles.shape[:2]
    rows = [np.concatenate(list(tiles[i : i + per_row]), axis=1) for i in range(0, n, per_row)]
    assert rows[0].shape == (size, size * per_row, 3)
    stream = io.BytesIO()
    Image.fromarray(np.concatenate(rows)).save(stream, image_format, lossless=True)
    return stream.getvalue()


def packed_arrays(n: int = 7, size: int = 8, image_format: str = "PNG") -> tuple[np.ndarray, dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (n, size, size, 3), dtype=np.uint8)
    padded = np.concatenate([images, np.zeros((12 - n, size, size, 3), np.uint8)])
    pictures = [sheet(padded[:6], 3, image_format), sheet(padded[6:], 3, image_format)]
    encoded = b"".join(pictures)
    arrays = {
        "bytes_train": np.frombuffer(encoded, np.uint8),
        "offset_train": np.cumsum([0, *map(len, pictures)]),
        "y_train": (np.arange(n) % 3).astype(np.uint8),
        "size": np.array(size),
        "classes": np.array(["a", "b", "c"]),
    }
    return images, arrays


@pytest.mark.parametrize("image_format", ["PNG", "WEBP"])
def test_packed__sheets_come_back_bit_exact(tmp_path, image_format):
    images, arrays = packed_arrays(image_format=image_format)
    np.savez(tmp_path / "set.npz", **arrays)
    loaded = load_packed(tmp_path / "set.npz", "train")
    np.testing.assert_array_equal(loaded.images.numpy(), images.transpose(0, 3, 1, 2))
    assert loaded.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert loaded.class_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("size", np.array(5), "no tiles of side 5"),
        ("size", np.array(10**9), "from 1 to 1024"),
        ("size", np.array([8, 8]), "one whole number"),
        ("offset_train", np.array([0, 10**12]), "must ascend"),
        ("offset_train", np.array([0, 50, 20]), "must ascend"),
        ("offset_train", np.array([0.0, 1.0]), "whole numbers"),
        ("y_train", np.arange(7) + 3, "class names"),
        ("y_train", np.full(7, -1), "class names"),
        ("y_train", np.zeros(13, np.uint8), "13 labels but 12 images"),
        ("y_train", np.zeros((7, 1), np.uint8), "1-D"),
        ("y_train", np.zeros(10**5, np.uint8), "more than this format is meant for"),
        ("bytes_train", np.zeros(40, np.uint16), "uint8"),
        ("classes", np.array([1, 2, 3]), "list of names"),
        ("classes", np.array(["a", None], dtype=object), "pickled"),
    ],
)
def test_packed__hostile_arrays_are_refused(tmp_path, name, value, message):
    _, arrays = packed_arrays()
    if message.startswith("more than"):
        arrays["size"] = np.array(1024)
    np.savez_compressed(tmp_path / "set.npz", **(arrays | {name: value}))
    with pytest.raises(ValueError, match=message):
        load_packed(tmp_path / "set.npz", "train")


def test_packed__pictures_that_are_no_images_are_refused(tmp_path):
    _, arrays = packed_arrays()
    garbage = np.full(100, 7, np.uint8)
    np.savez(tmp_path / "set.npz", **(arrays | {"bytes_train": garbage, "offset_train": np.array([0, 100])}))
    with pytest.raises(ValueError, match="picture 0 is damaged"):
        load_packed(tmp_path / "set.npz", "train")


def test_read_npz__missing_array_is_named(tmp_path):
    np.savez(tmp_path / "set.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match="no array 'x'"):
        read_npz(tmp_path / "set.npz", ("x",))


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_read_npz__cut_file_is_refused(tmp_path, keep):
    np.savez(tmp_path / "set.npz", x=np.arange(1000))
    content = (tmp_path / "set.npz").read_bytes()
    (tmp_path / "set.npz").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ValueError, match="damaged"):
        read_npz(tmp_path / "set.npz", ("x",))


def test_read_npz__flipped_byte_fails_the_checksum(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.arange(1000))
    content = bytearray((tmp_path / "set.npz").read_bytes())
    content[2000] ^= 1
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        read_npz(tmp_path / "set.npz", ("x",))


def test_read_npz__header_that_claims_more_than_is_there(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (10**13,)})
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("x.npy", stream.getvalue() + b"few bytes")
    with pytest.raises(ValueError, match="do not match"):
        read_npz(tmp_path / "set.npz", ("x",))


@pytest.mark.parametrize("side", [9000, 30_000])
def test_decode_image__bomb_is_refused_by_its_header(side):
    with pytest.raises(ValueError, match="big picture.*(over the limit|decompression bomb)"):
        decode_image(f"P5 {side} {side} 255\n".encode(), "RGB", "big picture")


def test_decode_image__other_formats_are_not_even_tried():
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "GIF")
    with pytest.raises(ValueError, match="no image of JPEG"):
        decode_image(stream.getvalue(), "RGB", "a gif")


def test_load_data__packed_set_from_a_folder(tmp_path):
    _, arrays = packed_arrays()
    both = arrays | {name.replace("train", "test"): value for name, value in arrays.items()}
    np.savez(tmp_path / "lfw158_64.npz", **both)
    data = load_data("lfw158", tmp_path)
    assert (data.name, data.source, len(data.test)) == ("lfw158", "lfw158_64.npz", 7)
