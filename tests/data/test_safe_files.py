from __future__ import annotations

import io
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from attention_cem.data import image_folder
from attention_cem.data.safe_files import decode_image, read_npz

DEEP_GREYS = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
TEXT = b"Comment\0\0" + zlib.compress(bytes(2 << 20))
TOKENS = [bytes([each]) for each in b"()[]{}',:-1Tx\n\0"]


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def pgm(pixels: np.ndarray, largest: int) -> bytes:
    height, width = pixels.shape
    return f"P5 {width} {height} {largest}\n".encode() + pixels.astype(">u2").tobytes()


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("content", [png(Image.fromarray(DEEP_GREYS)), pgm(DEEP_GREYS, 65535)], ids=["PNG", "PGM"])
def test_decode_image__sixteen_bit_grey_keeps_its_brightness(content: bytes, mode: str) -> None:
    pixels = np.asarray(decode_image(content, mode, "a deep image"))
    expected = np.rint(DEEP_GREYS / 257).astype(np.uint8)
    np.testing.assert_array_equal(pixels if mode == "L" else pixels[..., 1], expected)


def test_decode_image__twelve_bit_pgm_uses_the_whole_range() -> None:
    pixels = np.asarray(decode_image(pgm(DEEP_GREYS // 16, 4095), "L", "a scan"))
    np.testing.assert_array_equal(pixels, np.rint((DEEP_GREYS // 16) / 4095 * 255).astype(np.uint8))


def test_decode_image__floating_point_pixels_have_no_known_range() -> None:
    content = b"Pf\n64 64\n-1.0\n" + DEEP_GREYS.astype("<f4").tobytes()
    with pytest.raises(ValueError, match="a float map: .*mode 'F'.*save it with 8 or 16 bits"):
        decode_image(content, "L", "a float map")


def test_image_folder__sixteen_bit_grey_images_are_not_white(tmp_path: Path) -> None:
    for name in ("a/0", "a/1", "b/0", "b/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.png").write_bytes(png(Image.fromarray(np.full((16, 16), 25700, np.uint16))))
    data = image_folder(tmp_path, size=16, test_fraction=0.5)
    assert (data.train.images == 100).all() and (data.test.images == 100).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_decode_image__photos_stand_as_a_viewer_shows_them(kind: str, orientation: int) -> None:
    # broke: photos that a telephone took upright were read lying on their side
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :16], pixels[:8, 16:], pixels[8:, :16] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind, exif=exif)
    shown = ImageOps.exif_transpose(Image.open(content)).convert("RGB")
    np.testing.assert_array_equal(np.asarray(decode_image(content.getvalue(), "RGB", "a photo")), np.asarray(shown))


def test_decode_image__damaged_exif_does_not_cost_the_photo() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = io.BytesIO()
    Image.new("RGB", (20, 10)).save(content, "WEBP", exif=exif)
    damaged = content.getvalue().replace(b"MM\x00*", b"M\x00\x00*").replace(b"II*\x00", b"I\x00*\x00")
    assert damaged != content.getvalue()
    assert decode_image(damaged, "RGB", "a photo").size == (20, 10)


def npy(header: bytes, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + content


def write_npz(path: Path, member: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", member)
    return path


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (3,",
        b"-" * 9000 + b"1",
        b"(" * 9000,
        b"{[]: 1}",
        b"{'descr': [1], 'fortran_order': False, 'shape': (3,)}",
        b"{'descr': ('|u1', 'x'), 'fortran_order': False, 'shape': (3,)}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (True,)}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (1.0,)}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -1)}",
        b"{'descr': '|V0', 'fortran_order': False, 'shape': (1,)}",
        b"\xff\x00",
    ],
    ids=lambda header: header[:60].decode("latin-1"),
)
def test_read_npz__hostile_header_is_refused(tmp_path: Path, header: bytes) -> None:
    path = write_npz(tmp_path / "set.npz", npy(header, b"\x01"))
    with pytest.raises(ValueError, match=r"set\.npz.*array 'x'"):
        read_npz(path, ("x",))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_read_npz__any_changed_header_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    header = bytearray(b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}")
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(header) - 1))
        taken = data.draw(st.integers(0, 3))
        header[position : position + taken] = data.draw(st.sampled_from(TOKENS))
    path = write_npz(tmp_path / "set.npz", npy(bytes(header), b"\x01"))
    with suppress(ValueError):
        read_npz(path, ("x",))


def test_read_npz__encrypted_member_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "set.npz", b"secret")
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flag of the member's own header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and of the directory at the end
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"set\.npz.*encrypted"):
        read_npz(path, ("x",))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_read_npz__damaged_compression_is_refused_or_harmless(tmp_path: Path, compression: int) -> None:
    pixels, stream = np.random.default_rng(0).integers(0, 256, 4000, np.uint8), io.BytesIO()
    np.save(stream, pixels)
    whole = write_npz(tmp_path / "set.npz", stream.getvalue(), compression).read_bytes()
    for position in range(40, 400, 9):
        content = bytearray(whole)
        content[position : position + 4] = b"\xff" * 4
        (tmp_path / "set.npz").write_bytes(content)
        with suppress(ValueError):  # a few bytes of the headers tell nothing of the content: those are read
            np.testing.assert_array_equal(read_npz(tmp_path / "set.npz", ("x",))["x"], pixels)


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_decode_image__what_is_no_image_is_told_in_the_same_words_each_time(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"a note is damaged or no image of [A-Z, ]+$"):
        decode_image(content, "RGB", "a note")


DAMAGED = {
    "cut short": b"P2\n8 8\n255\n" + b"1 " * 10,
    "no size": b"P6\n8 eight\n255\n" + bytes(192),
    "no range": b"P5\n8 8\n0\n" + bytes(64),
    "bomb of text": png(Image.new("L", (8, 8)))[:33]
    + struct.pack(">I4s", len(TEXT), b"zTXt")
    + TEXT
    + struct.pack(">I", zlib.crc32(b"zTXt" + TEXT)),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_decode_image__every_damage_names_the_file(content: bytes) -> None:
    # broke: "1 of 400 images cannot be read; remove or repair them: not enough image data"
    with pytest.raises(ValueError, match=r"^photo 7 is damaged or no image of [A-Z, ]+: "):
        decode_image(content, "RGB", "photo 7")


def test_decode_image__size_is_refused_before_pixels_are_decoded() -> None:
    with pytest.raises(ValueError, match=r"^a plan: 8000×8000 pixels are over the limit of 50000000$"):
        decode_image(png(Image.new("1", (8000, 8000))), "RGB", "a plan")
