"""The built handbook: no warning, no dead link, nothing from outside, searchable in Chinese."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from studies.publish import stale_pages

from tests.docs.conftest import build
from tests.docs.pages import DOCS, PAGES, ROOT, tables

pytestmark = pytest.mark.slow
ALIASES = {"Progress", "Runner"}


class Page(HTMLParser):
    """Anchors, links and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.math = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script", "source", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(values.get("href", ""))
        self.math += tag == "math"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {
        path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if "_static" not in path.parts
    }


def test_site__has_every_page_in_both_languages(pages: dict[Path, Page], site: Path) -> None:
    for language in ("en", "zh"):
        for page in PAGES:
            assert site / language / page.replace(".md", ".html") in pages


def test_site__links_and_anchors_lead_somewhere(pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not target.is_file():
                dead.append(f"{path.name}: {link}")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                dead.append(f"{path.name}: no anchor {link}")
    assert dead == []


def test_site__loads_nothing_from_outside_and_every_file_is_there(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for source in page.loaded:
            if source.startswith("data:"):
                continue
            assert not re.match(r"[a-z]+:|//", source), f"{path.name} loads {source}"
            assert (path.parent / source.partition("?")[0]).is_file(), f"{path.name} loads {source}"


def test_site__style_sheets_fetch_no_fonts(site: Path) -> None:
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_site__equations_are_mathml(pages: dict[Path, Page], site: Path) -> None:
    for language in ("en", "zh"):
        assert pages[site / language / "use/loop.html"].math >= 2
    for path in pages:
        assert "MathJax" not in path.read_text(encoding="utf-8")


PACKAGES = sorted(page.removeprefix("api/").removesuffix(".md") for page in PAGES if page.startswith("api/"))


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "testing"])
def test_api__shows_every_public_name(pages: dict[Path, Page], site: Path, package: str) -> None:
    names = importlib.import_module(f"attention_cem.{package}").__all__
    for language in ("en", "zh"):
        ids = {each.rpartition(".")[2] for each in pages[site / language / "api" / f"{package}.html"].ids}
        # Constants and type aliases without a docstring have no entry of their own.
        missing = {name for name in names if name not in ids and not (name.isupper() or name in ALIASES)}
        assert missing == set()


@pytest.mark.parametrize("word", ["条件熵", "切分", "多卡", "攻击者"])
def test_search__finds_chinese_words_of_two_characters_and_more(site: Path, word: str) -> None:
    index = (site / "zh" / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["terms"]
    for start in range(len(word) - 1):
        assert word[start : start + 2] in terms


def test_results__are_fresh_and_name_where_figures_come_from() -> None:
    assert stale_pages(ROOT) == []
    for path in sorted((ROOT / "results").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path.name == "exploration.md":
            continue
        assert text.startswith("<!-- made by `make results`"), path.name
        for table in tables(text):
            measured = [line for line in table[2:] if re.search(r"\d\.\d", line)]
            named = re.search(r"commit|source|why|file|evidence", table[0])
            published = path.name == "paper-table.md" and "without CEM" in table[0]
            assert not measured or named or published, f"{path.name}: {table[0]}"


def test_build__is_what_make_docs_does() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "SPHINX = $(BIN)/python -m sphinx -b html -c docs -n -W --keep-going -q" in recipe
    assert "docs/en docs/_build/html/en" in recipe and "-t zh" in recipe


def test_build__fails_while_a_table_is_stale(tmp_path: Path) -> None:
    """A copy of the repository in which a study file changed after its table was made."""
    for name in ("docs", "results", "studies", "configs", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    (tmp_path / "src").symlink_to(ROOT / "src")
    for name in ("README.md", "README.zh.md"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    assert stale_pages(tmp_path) == []
    study = tmp_path / "studies" / "main-cifar10.toml"
    study.write_text(study.read_text() + "\n# one more remark\n")
    assert stale_pages(tmp_path), "a changed study file must make its table stale"
    done = build("en", tmp_path / "out" / "en", docs=tmp_path / "docs")
    assert done.returncode != 0
    assert "make results" in done.stderr


def test_build__fails_on_a_page_in_one_language_only(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "__pycache__"))
    for name in ("src", "studies", "results", "configs", "benchmarks", "README.md", "README.zh.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs" / "en" / "lonely.md").write_text("# Lonely\n")
    done = build("en", tmp_path / "out" / "en", docs=tmp_path / "docs")
    assert done.returncode != 0
    assert "lonely.md" in done.stderr
