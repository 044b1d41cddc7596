"""Both languages are complete and say the same, and everything a page points to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import (
    CHINESE,
    ENGLISH,
    PAGES,
    ROOT,
    Block,
    code_blocks,
    defined_names,
    heading_levels,
    images,
    included_objects,
    links,
    numbers,
    tables,
    without_code,
)

BOTH = [folder / page for folder in (ENGLISH, CHINESE) for page in PAGES]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "docs").as_posix()


def read(folder: Path, page: str) -> str:
    return (folder / page).read_text(encoding="utf-8")


def test_languages__hold_the_same_pages() -> None:
    assert len(PAGES) > 25
    assert sorted(path.relative_to(CHINESE).as_posix() for path in CHINESE.rglob("*.md")) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_languages__have_the_same_headings(page: str) -> None:
    english, chinese = (heading_levels(read(folder, page)) for folder in (ENGLISH, CHINESE))
    assert english == chinese
    assert english[0] == 1 and english.count(1) == 1


@pytest.mark.parametrize("page", PAGES)
def test_languages__have_the_same_code(page: str) -> None:
    english, chinese = (code_blocks(read(folder, page)) for folder in (ENGLISH, CHINESE))
    assert english == chinese


@pytest.mark.parametrize("page", PAGES)
def test_languages__have_the_same_figures_in_tables_and_the_same_pictures(page: str) -> None:
    english, chinese = read(ENGLISH, page), read(CHINESE, page)
    assert [numbers(table) for table in tables(english)] == [numbers(table) for table in tables(chinese)]
    assert images(english) == images(chinese)


@pytest.mark.parametrize("page", PAGES)
def test_chinese__is_chinese_and_english_is_not(page: str) -> None:
    chinese, english = (
        len(re.findall(r"[\u4e00-\u9fff]", without_code(read(folder, page)))) for folder in (CHINESE, ENGLISH)
    )
    least = {"api": 2, "results": 12}.get(page.partition("/")[0], 80)
    assert chinese >= least
    assert english <= 60, "an English page may quote Chinese, not be written in it"


@pytest.mark.parametrize("path", BOTH, ids=name_of)
def test_page__links_lead_to_pages(path: Path) -> None:
    for target in links(path.read_text(encoding="utf-8")):
        file = target.partition("#")[0]
        if file:
            found = path.parent / file
            assert found.is_file(), f"{name_of(path)} leads to {target}"
            assert path.relative_to(ROOT / "docs").parts[0] in found.resolve().parts, f"{target} is another language"


@pytest.mark.parametrize("path", BOTH, ids=name_of)
def test_page__pictures_and_included_code_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    language = ENGLISH if path.is_relative_to(ENGLISH) else CHINESE
    for target in [*images(text), *re.findall(r"^`{3,}\{literalinclude\}\s*(\S+)", text, re.MULTILINE)]:
        found = language / target.lstrip("/") if target.startswith("/") else path.parent / target
        assert found.resolve().is_file(), f"{name_of(path)} shows {target}"


@pytest.mark.parametrize("path", BOTH, ids=name_of)
def test_page__code_it_takes_from_the_source_is_there(path: Path) -> None:
    language = ENGLISH if path.is_relative_to(ENGLISH) else CHINESE
    for file, name in included_objects(path.read_text(encoding="utf-8")):
        found = language / file.lstrip("/") if file.startswith("/") else path.parent / file
        assert name in defined_names(found.read_text(encoding="utf-8")), f"{name} is no longer in {found.name}"


@pytest.mark.parametrize("path", BOTH, ids=name_of)
def test_page__speaks_of_no_machine_of_ours(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(?:work|home|root|tmp)/", text)


@pytest.mark.parametrize("page", [page for page in PAGES if page == "results.md" or page.startswith("results/")])
def test_results__are_included_and_never_typed(page: str) -> None:
    for folder in (ENGLISH, CHINESE):
        text = read(folder, page)
        assert text.count("{generated}") == 1
        assert tables(text) == []
        assert re.findall(r"\d+\.\d+|\d+\s*%", without_code(text)) == []


def test_code_blocks__are_told_apart() -> None:
    text = (
        "```sh\nls\n```\n\n```{code-block} python\n:caption: a.py\n\nx = 1\n```\n\n"
        "```{code-block} sh\n:class: not-run\n\nmake demo\n```\n\n```{toctree}\nstart\n```\n\n````text\n```sh\n````\n"
    )
    assert code_blocks(text) == [
        Block("sh", "ls\n", None, False),
        Block("python", "x = 1\n", "a.py", False),
        Block("sh", "make demo\n", None, True),
        Block("text", "```sh\n", None, False),
    ]
