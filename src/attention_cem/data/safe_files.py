"""Read arrays and images from files nobody vouches for: sizes are checked before memory is spent."""

from __future__ import annotations

import io
import lzma
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

MAX_ARRAY_BYTES = 4 << 30
MAX_IMAGE_BYTES = 64 << 20
MAX_IMAGE_PIXELS = 50_000_000
IMAGE_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "WEBP")
_ORIENTATION = 0x0112  # of EXIF; 1 is upright
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# What zipfile and its decompressors raise for damaged or encrypted members; OSError is bzip2's.
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError, struct.error)


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Read the named arrays of an ``.npz`` file; arrays of Python objects (pickle) are refused.

    The header of each array must agree with the bytes that are there, so a small file cannot ask for much
    memory.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return {name: _read_array(archive, name, path) for name in names}
        except _DAMAGED as error:
            raise ValueError(f"{path} is damaged or no .npz file: {error}") from error


def _read_array(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    try:
        member = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise ValueError(f"{path} has no array {name!r}; it holds {archive.namelist()[:20]}") from None
    if member.file_size > MAX_ARRAY_BYTES:
        raise ValueError(f"{path}: array {name!r} of {member.file_size} bytes is over {MAX_ARRAY_BYTES}")
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, fortran_order, dtype = read_header(stream)
        except Exception as error:  # numpy reads the text as Python: tokens, syntax, types, memory can all be wrong
            raise ValueError(f"{path}: array {name!r} has no readable header: {error}") from error
        if any(type(n) is not int for n in shape):  # True passes numpy's own check
            raise ValueError(f"{path}: array {name!r} has a shape {shape} that is not made of whole numbers")
        if dtype.hasobject:
            raise ValueError(
                f"{path}: array {name!r} holds pickled Python objects; unpickling runs code, so it is refused"
            )
        num_bytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or stream.tell() + num_bytes != member.file_size:
            raise ValueError(f"{path}: array {name!r} claims shape {shape} of {dtype}, its bytes do not match")
        content = stream.read(num_bytes)
        if len(content) != num_bytes or stream.read(1):  # the read past the end also checks the CRC
            raise ValueError(f"{path}: array {name!r} is cut short")
    try:
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran_order else "C")
    except ValueError as error:
        raise ValueError(f"{path}: array {name!r} cannot have shape {shape} of {dtype}: {error}") from error


def decode_image(content: bytes, mode: str, what: str) -> Image.Image:
    """Decode one image to ``mode`` ("RGB" or "L"); ``what`` names it in errors.

    Only plain formats are tried, and the header's size is checked before any pixel is decoded. Grey images of 16
    bits are scaled to 8. Photos that say which way up they are (EXIF), as those of telephones do, are turned.
    """
    try:
        with Image.open(io.BytesIO(content), formats=IMAGE_FORMATS) as image:
            refusal = _refusal(image)
            if refusal is None:
                return _upright(image, _eight_bits(image).convert(mode))
    except (OSError, SyntaxError, EOFError, ValueError, Image.DecompressionBombError) as error:
        # of one it does not know Pillow names the buffer's address, another at every call
        why = "" if isinstance(error, UnidentifiedImageError) else f": {error}"
        raise ValueError(f"{what} is damaged or no image of {', '.join(IMAGE_FORMATS)}{why}") from error
    raise ValueError(f"{what}: {refusal}")


def _refusal(image: Image.Image) -> str | None:
    """Why an image whose header alone was read is not decoded."""
    width, height = image.size
    if width * height > MAX_IMAGE_PIXELS:
        return f"{width}×{height} pixels are over the limit of {MAX_IMAGE_PIXELS}"
    if image.mode in ("I", "F") and not _has_sixteen_bits(image):
        return f"pixels of mode {image.mode!r} (32 bits) have no known range; save it with 8 or 16 bits a channel"
    return None


def _upright(image: Image.Image, pixels: Image.Image) -> Image.Image:
    """Turn decoded pixels as the image file's EXIF entry asks; pixels whose entry makes no sense stay as they are."""
    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except SyntaxError:  # how Pillow says that the entries are damaged
        return pixels
    return pixels if turn is None else pixels.transpose(turn)


def _has_sixteen_bits(image: Image.Image) -> bool:
    # Pillow spreads the values of a PGM with more than 8 bits over all 16 and calls it I, as older ones call PNG.
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale grey values of 16 bits to 8; Pillow's own conversion cuts all of them above 255 off to white."""
    if _has_sixteen_bits(image):
        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    return image


def read_image_file(path: Path, mode: str) -> Image.Image:
    """Read and decode one image file."""
    if path.stat().st_size > MAX_IMAGE_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes are over the limit of {MAX_IMAGE_BYTES}")
    return decode_image(path.read_bytes(), mode, str(path))
