"""From which files a generated page was made, by content, so that a page older than its studies is found.

Standard library only: a build of the documentation asks on every run.

A stamp is a digest of a page's inputs and one of the page itself, in an HTML comment on its first line. The summary's
stands under ``stamp`` and names every input, so that it can be told which one has changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from studies.publish_settings import PUBLISHED, SETTINGS, Settings, read_settings, read_toml

SUMMARY, INDEX, COST, PAPER = (
    "results/summary.json",
    "results/README.md",
    "results/cost.md",
    "results/paper-table.md",
)
FRONTS = ("README.md", "README.zh.md")
PICTURES = "results/pictures"
AUGMENTED_FIGURES = "results/benchmarks/augmented.json"
"""What attackers with augmented images find more."""
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
_COMMENT = re.compile(r"<!-- made by `make results`, not by hand: inputs ([0-9a-f]{16}), page ([0-9a-f]{16}) -->\n")
Inputs = dict[str, str]


def study_files(root: Path, settings: Settings) -> list[Path]:
    """Study files that have results or a page to stand on; a search has no cells before it is run."""
    files = sorted((root / "studies").glob("*.toml"))
    wanted = [file for file in files if settings.concerns(file.stem) or result_files(root, file.stem)]
    return [file for file in wanted if {"matrix", "method", "cell"} & set(read_toml(file))]


def result_files(root: Path, study: str) -> list[Path]:
    """The stored results of a study."""
    return sorted((root / "results" / "studies" / study).glob("*.json"))


def benchmark_files(root: Path) -> list[Path]:
    """Measurements of one training alone on a machine."""
    return sorted((root / "results" / "benchmarks").glob("throughput-*.json"))


def made_from(root: Path) -> dict[str, Inputs]:
    """Every generated file with the digests of what it is made from, as the files are now."""
    settings = read_settings(root)
    shared = {SETTINGS: _digest([root / SETTINGS])}
    by_study = {file.stem: _study_inputs(root, file) for file in study_files(root, settings)}
    for name in orphans(root, by_study):
        by_study[name] = {f"results/studies/{name}": _digest(result_files(root, name))}
    shared[PICTURES] = _digest(sorted((root / PICTURES).glob("*/*.png")))
    everything = {**shared, **{name: digest for each in by_study.values() for name, digest in each.items()}}
    benchmarks = {f"results/benchmarks/{file.name}": _digest([file]) for file in benchmark_files(root)}
    augmented = {AUGMENTED_FIGURES: _digest([root / AUGMENTED_FIGURES])} if (root / AUGMENTED_FIGURES).is_file() else {}
    published = {PUBLISHED: _digest([root / PUBLISHED])}
    # A study may borrow the equal runs of any other.
    made: dict[str, Inputs] = {page.file: dict(everything) for page in settings.pages}
    made.update({COST: {**everything, **benchmarks}, PAPER: {**everything, **published}})
    made.update({file: {**everything, **benchmarks, **augmented} for file in (SUMMARY, INDEX, *FRONTS)})
    return made


def orphans(root: Path, known: Iterable[str]) -> list[str]:
    """Folders of results that no study file explains."""
    folder = root / "results" / "studies"
    present = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    return [name for name in present if name not in set(known) and result_files(root, name)]


def stamped_text(body: str, inputs: Inputs) -> str:
    """A page with its stamp on the first line."""
    comment = f"<!-- made by `make results`, not by hand: inputs {_of(inputs)}, page {_of(body)} -->"
    return f"{comment}\n{body}"


def stamped_json(content: Mapping[str, Any], inputs: Inputs) -> str:
    """JSON text with its stamp under ``stamp``."""
    stamp = {"inputs": inputs, "page": _of(content)}
    return json.dumps({**content, "stamp": stamp}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def block_of(text: str) -> str | None:
    """What stands between the markers; None where they are not both there once and in order."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        return None
    return text[text.index(BEGIN) + len(BEGIN) + 1 : text.index(END)]


def stale_files(root: Path) -> list[str]:
    """One line in words for each generated file that is missing, older than what it is made from, or edited."""
    made = made_from(root)
    noted = _noted_inputs(root / SUMMARY)
    lines = []
    for name, inputs in made.items():
        trouble = _trouble(root / name, inputs, noted)
        if trouble:
            lines.append(f"{name} {trouble}: run `make results`")
    return lines


def _trouble(file: Path, inputs: Inputs, noted: Inputs) -> str | None:
    if not file.is_file():
        return "is missing"
    stamp = _stamp_in(file)
    if stamp is None:
        return "has no stamp that says what it was made from"
    had, page, page_now = stamp
    if had != _of(inputs):
        return f"is older than {_what_changed(inputs, noted)}"
    return "was edited by hand" if page != page_now else None


def _what_changed(inputs: Inputs, noted: Inputs) -> str:
    """Names of what differs from what the summary was made from; it may itself be newer than a page."""
    changed = [name for name, digest in inputs.items() if noted.get(name) != digest]
    gone = [name for name in noted if name not in inputs and not name.endswith(".json")]
    named = changed or gone
    if not named:
        return "its study or result files"
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _noted_inputs(summary: Path) -> Inputs:
    stamp = _json(summary).get("stamp")
    inputs = stamp.get("inputs") if isinstance(stamp, dict) else None
    return {str(name): str(digest) for name, digest in inputs.items()} if isinstance(inputs, dict) else {}


def _stamp_in(file: Path) -> tuple[str, str, str] | None:
    """Digests of the inputs and the page as the stamp has them, and of the page as it is; None without a stamp."""
    if file.suffix == ".json":
        content = _json(file)
        stamp = content.pop("stamp", None)
        if not isinstance(stamp, dict):
            return None
        return _of(stamp.get("inputs")), str(stamp.get("page")), _of(content)
    text = file.read_text(encoding="utf-8")
    block = block_of(text)
    body = text if block is None else block
    found = _COMMENT.match(body)
    return None if found is None else (found.group(1), found.group(2), _of(body[found.end() :]))


def _json(file: Path) -> dict[str, Any]:
    """An object from a JSON file; an empty one where there is none, which no stamp fits."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def _study_inputs(root: Path, file: Path) -> Inputs:
    """A study is its file with the configurations it builds on, and its results."""
    tree = read_toml(file)
    tables = [tree, *tree.get("method", []), *tree.get("cell", [])]
    bases = sorted({table["base"] for table in tables if isinstance(table, dict) and "base" in table})
    return {
        f"studies/{file.name}": _digest([file, *(file.parent / base for base in bases)]),
        f"results/studies/{file.stem}": _digest(result_files(root, file.stem)),
    }


def _digest(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "absent"
        whole.update(f"{file.name} {content}\n".encode())
    return whole.hexdigest()[:16]


def _of(content: Any) -> str:
    """Digest of a text or of plain data."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
