"""Which image files a folder holds, of which class and split, for the layouts people have on disk.

- ``tinyimagenet``: ``train/<wnid>/images/*``, ``val/images/*`` with the classes in ``val/val_annotations.txt``;
- ``split``: ``train/<class>/*`` and ``test/<class>/*`` (or ``val``, ``valid``, ``validate``, ``validation``);
- ``facescrub``: ``actors/faces/<person>/*`` and ``actresses/faces/<person>/*`` (``faces`` may be missing);
- ``classes``: ``<class>/*``.

The last two have no split of their own: it is drawn at random from a seed, stratified by class.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp"})
_NOT_READ = frozenset({".avif", ".gif", ".heic", ".heif", ".jp2", ".tif", ".tiff"})
LAYOUTS = ("tinyimagenet", "split", "facescrub", "classes")
_TEST_FOLDERS = ("test", "val", "valid", "validate", "validation")
_FACESCRUB_FOLDERS = ("actors", "actresses")
_MAX_TEXT_BYTES = 16 << 20
_MOST_NAMED = 10


@dataclass(frozen=True)
class LabelledFiles:
    """Image files with a class each; ``test`` is None where the layout has no split."""

    class_names: tuple[str, ...]
    train: list[tuple[Path, int]]
    test: list[tuple[Path, int]] | None


def detect_layout(folder: Path) -> str | None:
    """Say which layout a folder has, None when it holds no images in class folders. Looks at few files."""
    if (folder / "train").is_dir():
        if (folder / "val" / "val_annotations.txt").is_file():
            return "tinyimagenet"
        if _test_folder(folder) is not None and _has_class_folder(folder / "train"):
            return "split"
    if any(_has_class_folder(people) for people in _facescrub_people(folder)):
        return "facescrub"
    return "classes" if _has_class_folder(folder) else None


def list_files(folder: Path, layout: str) -> LabelledFiles:
    """List the images of ``folder`` in a fixed order, classes sorted by name."""
    if layout == "tinyimagenet":
        return _list_tinyimagenet(folder)
    if layout == "split":
        test_folder = _test_folder(folder)
        if test_folder is None:
            raise ValueError(f"{folder}: layout 'split' needs one of the folders {', '.join(_TEST_FOLDERS)}")
        names, train = _list_classes([folder / "train"])
        test_names, test = _list_classes([test_folder])
        if not test:
            raise ValueError(
                f"no test images in {test_folder}; put class folders with images there, or name {folder / 'train'} "
                "as the data folder to have a test part drawn from it"
            )
        strangers = sorted(set(test_names) - set(names))
        if strangers:
            raise ValueError(f"{test_folder} has classes that {folder / 'train'} has not: {', '.join(strangers[:10])}")
        return LabelledFiles(names, train, [(path, names.index(test_names[c])) for path, c in test])
    if layout == "facescrub":
        return LabelledFiles(*_list_classes(_facescrub_people(folder)), test=None)
    if layout == "classes":
        return LabelledFiles(*_list_classes([folder]), test=None)
    raise ValueError(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}, or 'auto'")


def _list_classes(parents: Iterable[Path]) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    folders: dict[str, Path] = {}
    for parent in parents:
        for folder in _subfolders(parent):
            if folder.name in folders:
                raise ValueError(f"class {folder.name!r} has two folders, {folders[folder.name]} and {folder}")
            folders[folder.name] = folder
    files = {name: _images_in(folder) for name, folder in sorted(folders.items())}
    _refuse_to_lose_what_lies_deeper(folders.values())
    for name in (name for name, images in files.items() if not images):
        _refuse_to_lose(name, folders[name])
    names = tuple(name for name, images in files.items() if images)
    return names, [(path, label) for label, name in enumerate(names) for path in files[name]]


def _refuse_to_lose(name: str, folder: Path) -> None:
    """Folders without pictures are no classes; one whose pictures are all of a kind that is not read is."""
    kinds = sorted({path.suffix.lower() for path in folder.iterdir()} & _NOT_READ)
    if kinds:
        raise ValueError(
            f"class {name!r} would be lost: {folder} holds only {', '.join(kinds)}, and {', '.join(sorted(SUFFIXES))} "
            "are read; convert its pictures, or move the folder away"
        )


def _refuse_to_lose_what_lies_deeper(class_folders: Iterable[Path]) -> None:
    """Pictures are read from a class folder itself; those in folders inside it would be left out."""
    deeper = [sub for folder in class_folders for sub in _subfolders(folder) if _holds_pictures(sub)]
    if deeper:
        more = f" and {len(deeper) - _MOST_NAMED} more" if len(deeper) > _MOST_NAMED else ""
        raise ValueError(
            f"pictures inside {', '.join(map(str, deeper[:_MOST_NAMED]))}{more} would be lost: they lie in a folder "
            "inside a class folder; move them up into it, move that folder away, or name another --data.root"
        )


def _holds_pictures(folder: Path) -> bool:
    """Whether pictures, read or not, lie in the folder or below it; hidden files and folders do not count."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(Path(name).suffix.lower() in SUFFIXES | _NOT_READ for name in files if not name.startswith(".")):
            return True
    return False


def _list_tinyimagenet(folder: Path) -> LabelledFiles:
    wnids = tuple(sub.name for sub in _subfolders(folder / "train"))
    number = {wnid: label for label, wnid in enumerate(wnids)}
    train = [(path, label) for wnid, label in number.items() for path in _images_in(folder / "train" / wnid / "images")]
    test = []
    annotations = folder / "val" / "val_annotations.txt"
    for line_number, line in enumerate(_read_text(annotations).splitlines(), 1):
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if Path(file).name != file or Path(file).suffix.lower() not in SUFFIXES or wnid not in number:
            raise ValueError(
                f"{annotations} line {line_number}: expected '<image file>\\t<class>\\t…', got {line[:80]!r}"
            )
        test.append((folder / "val" / "images" / file, number[wnid]))
    if not test:
        raise ValueError(f"no test images in {annotations}; unpack the archive again")
    words = dict.fromkeys(wnids, "")
    if (folder / "words.txt").is_file():
        words = dict(line.split("\t", 1) for line in _read_text(folder / "words.txt").splitlines() if "\t" in line)
    names = tuple(words.get(wnid, "").split(",")[0] or wnid for wnid in wnids)
    return LabelledFiles(names, train, test)


def _read_text(path: Path) -> str:
    if path.stat().st_size > _MAX_TEXT_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes are over the limit of {_MAX_TEXT_BYTES}")
    return path.read_text(encoding="utf-8", errors="replace")


def _subfolders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:  # tells folders from files without a look at each of many files
        return sorted(folder / each.name for each in entries if not each.name.startswith(".") and each.is_dir())


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _is_image(path)) if folder.is_dir() else []


def _has_class_folder(folder: Path) -> bool:
    return folder.is_dir() and any(_is_image(path) for sub in _subfolders(folder) for path in sub.iterdir())


def _test_folder(folder: Path) -> Path | None:
    return next((folder / name for name in _TEST_FOLDERS if (folder / name).is_dir()), None)


def _facescrub_people(folder: Path) -> list[Path]:
    parents = [folder / name for name in _FACESCRUB_FOLDERS if (folder / name).is_dir()]
    return [parent / "faces" if (parent / "faces").is_dir() else parent for parent in parents]
