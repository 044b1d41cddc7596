"""The handbook's figures: whole, language-neutral, and showing what the pages say they show."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from docs.figures.__main__ import FIGURES
from docs.figures.drawing import ASSETS, FORMAT
from tests.docs_figures.claims import CLAIMS

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT_NUMBERS = {"flow", "defects"}
EXACT = ("waves", "captains", "roll_call", "worked_example")
SLOW = ("assignment", "few_samples", "talk_down", "curves", "hiding")  # the others train the same small runs again
PICTURES = sorted(ASSETS.glob("*.svg"))


def stored(name: str, folder: Path = ASSETS) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return record


def redrawn(name: str, folder: Path) -> dict[str, Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        importlib.import_module(f"docs.figures.{name}").draw(folder)
    finally:
        torch.set_num_threads(threads)
    return stored(name, folder)


def test_figures__every_one_with_numbers_has_claims() -> None:
    assert set(CLAIMS) == set(FIGURES) - WITHOUT_NUMBERS


@pytest.mark.parametrize("name", CLAIMS)
def test_figures__numbers_say_what_the_pages_say(name: str) -> None:
    record = stored(name)
    assert record["format"] == FORMAT and record["name"] == name and isinstance(record["seed"], int)
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", record["commit"])
    assert set(record["versions"]) == {"attention_cem", "torch", "python"}
    CLAIMS[name](record["numbers"])


@pytest.mark.parametrize("name", EXACT)
def test_figures__drawn_again_show_the_same_numbers(name: str, tmp_path: Path) -> None:
    assert_close(redrawn(name, tmp_path)["numbers"], stored(name)["numbers"])


@pytest.mark.parametrize("name", ["scale", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_figures__drawn_again_support_the_same_claims(name: str, tmp_path: Path) -> None:
    CLAIMS[name](redrawn(name, tmp_path)["numbers"])


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_figures__are_self_contained_and_language_neutral(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "foreignObject"}
    assert all(link.startswith(("#", "data:image/png")) for link in re.findall(r'href="([^"]*)"', text))
    if not picture.stem.startswith("flow"):
        assert "text" not in tags, "letters are drawn as paths, so that no font is missing"
    assert len(text) < 1_500_000


@pytest.mark.parametrize("language", ["en", "zh"])
def test_figures__every_picture_is_shown(language: str) -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / language).rglob("*.md"))
    for picture in PICTURES:
        assert f"assets/understand/{picture.name}" in pages, f"{picture.name} is on no page"


def assert_close(found: Any, expected: Any) -> None:
    """Equal plain data, floats to a thousandth."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_close(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    else:
        assert found == expected
