"""The handbook as a reader meets it, on a phone and on a desk, opened from disk in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES
from tests.reporting.browser import browser, set_width

pytestmark = pytest.mark.slow
PHONE, DESK = 390, 1280
LANGUAGES = ("en", "zh")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def address(site: Path, language: str, page: str) -> str:
    return (site / language / page.replace(".md", ".html")).as_uri()


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages__fit_the_screen_and_the_console_is_silent(driver: Any, site: Path, language: str) -> None:
    """Each page is opened on a phone; the window then grows to that of a desk."""
    wide, broken, said = [], [], []
    driver.get_log("browser")
    for page in PAGES:
        set_width(driver, PHONE)
        driver.get(address(site, language, page))
        for width in (PHONE, DESK):
            set_width(driver, width)
            inner, too_wide, lost = driver.execute_script(
                """
                return [window.innerWidth, document.documentElement.scrollWidth > window.innerWidth,
                        [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)];
                """
            )
            assert inner == width, page
            wide += [(page, width)] if too_wide else []
            broken += lost
        said += [entry["message"] for entry in driver.get_log("browser")]
    assert wide == []
    assert broken == []
    assert said == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_language__switch_leads_to_the_same_page_and_back(driver: Any, site: Path, width: int) -> None:
    set_width(driver, width)
    driver.get(address(site, "en", "use/model.md"))
    for here, there, label in (("en", "zh", "中文"), ("zh", "en", "English")):
        assert driver.execute_script("return document.documentElement.lang").startswith(here)
        link = driver.find_element("css selector", ".language-switch a")
        assert link.is_displayed() and link.text == label
        link.click()
        assert driver.current_url == address(site, there, "use/model.md")


def test_root__leads_to_both_languages(driver: Any, site: Path) -> None:
    set_width(driver, PHONE)
    for language in LANGUAGES:
        driver.get((site / "index.html").as_uri())
        assert not driver.execute_script("return document.documentElement.scrollWidth > window.innerWidth")
        driver.find_element("css selector", f"a[href='{language}/index.html']").click()
        assert driver.current_url == address(site, language, "index.md")


def test_theme__dark_and_light_differ_and_text_stays_readable(driver: Any, site: Path) -> None:
    set_width(driver, DESK)
    driver.get(address(site, "en", "start.md"))
    contrasts = {}
    for theme in ("light", "dark"):
        driver.execute_script(f"document.body.dataset.theme = '{theme}'")
        contrasts[theme] = driver.execute_script(
            """
            const channels = s => s.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
              .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
            const light = s => { const [r, g, b] = channels(s); return .2126 * r + .7152 * g + .0722 * b; };
            const a = light(getComputedStyle(document.querySelector('article p')).color);
            const b = light(getComputedStyle(document.body).backgroundColor);
            return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), b];
            """
        )
    assert contrasts["light"][1] > 0.5 > contrasts["dark"][1]
    assert min(contrasts["light"][0], contrasts["dark"][0]) >= 7


@pytest.mark.parametrize(("language", "query"), [("en", "bottleneck"), ("zh", "条件熵"), ("zh", "噪声")])
def test_search__answers(driver: Any, site: Path, language: str, query: str) -> None:
    set_width(driver, DESK)
    driver.get((site / language / "search.html").as_uri() + f"?q={query}")
    from selenium.webdriver.support.ui import WebDriverWait

    found = WebDriverWait(driver, 20).until(lambda d: d.find_elements("css selector", "#search-results ul.search li"))
    assert found
