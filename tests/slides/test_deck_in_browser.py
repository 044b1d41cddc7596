"""The deck as an audience meets it: opened from disk in a real browser, on a screen, on a phone, and printed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slides.build import build

from tests.reporting.browser import browser
from tests.slides.shelves import ROOT, bare, copied, write_summary

RIGHT, LEFT, HOME, END = "\ue014", "\ue012", "\ue011", "\ue010"
OVERFLOWING = """
const slide = arguments[0], frame = slide.getBoundingClientRect(), found = [];
const foot = slide.querySelector('footer').getBoundingClientRect();
for (const each of slide.querySelectorAll('.kicker, h2, .body, .body *, footer *')) {
  if (each.ownerSVGElement || each.closest('pre, .scroll')) continue;
  const r = each.getBoundingClientRect();
  if (!r.width || !r.height) continue;
  const low = each.closest('footer') ? frame.bottom : foot.top;
  if (r.right > frame.right + 1 || r.left < frame.left - 1 || r.top < frame.top - 1 || r.bottom > low + 1)
    found.push([each.tagName, each.textContent.slice(0, 40), r.left, r.top, r.right, r.bottom].join(' '));
}
return found;
"""
SCROLLING = """
return [...arguments[0].querySelectorAll('pre, .scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.textContent.slice(0, 60));
"""
CLIPPED = """
return [...arguments[0].querySelectorAll('svg.chart')].flatMap(chart => {
  const box = chart.viewBox.baseVal;
  const outside = (r) => r.x < -1 || r.x + r.width > box.width + 1 || r.y + r.height > box.height + 2;
  return [...chart.querySelectorAll('text')]
    .filter(e => getComputedStyle(e).display !== 'none' && !e.closest('[transform]') && outside(e.getBBox()))
    .map(e => e.textContent);
});
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("decks")
    filled = copied(folder / "filled-house")
    write_summary(filled)
    roots = {"as it is": ROOT, "filled": filled, "bare": bare(folder / "bare-house")}
    return {name: build(root, folder / f"{name}.html") for name, root in roots.items()}


def opened(driver: Any, deck: Path, width: int, height: int) -> Any:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.get("about:blank")
    driver.get(deck.as_uri())
    return driver


def language(driver: Any, wanted: str) -> None:
    if driver.execute_script("return document.documentElement.dataset.lang") != wanted:
        driver.find_element("id", "language").click()
    assert driver.execute_script("return document.documentElement.dataset.lang") == wanted


def slides(driver: Any) -> list[Any]:
    return driver.find_elements("css selector", ".slide")


def shown(driver: Any) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelectorAll('.slide')].filter(e => getComputedStyle(e).visibility === 'visible')"
        ".map(e => e.id)"
    )


def press(driver: Any, keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(keys).perform()


@pytest.mark.parametrize("state", ["as it is", "filled", "bare"])
@pytest.mark.parametrize("wanted", ["en", "zh"])
def test_screen__nothing_overflows_any_slide(driver: Any, decks: dict[str, Path], state: str, wanted: str) -> None:
    page = opened(driver, decks[state], 1280, 720)
    language(page, wanted)
    for slide in slides(page):
        name = slide.get_attribute("id")
        assert page.execute_script(OVERFLOWING, slide) == [], name
        assert page.execute_script(SCROLLING, slide) == [], name
        assert page.execute_script(CLIPPED, slide) == [], name
    assert page.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [1280, 1280]
    assert page.get_log("browser") == []


@pytest.mark.parametrize("state", ["as it is", "filled", "bare"])
@pytest.mark.parametrize("wanted", ["en", "zh"])
def test_phone__all_slides_below_each_other_within_the_width(
    driver: Any, decks: dict[str, Path], state: str, wanted: str
) -> None:
    page = opened(driver, decks[state], 390, 844)
    language(page, wanted)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    assert len(shown(page)) == len(slides(page))
    tops = [slide.rect["y"] for slide in slides(page)]
    assert tops == sorted(tops) and len(set(tops)) == len(tops)
    for slide in slides(page):
        assert page.execute_script(OVERFLOWING, slide) == [], slide.get_attribute("id")
        assert page.execute_script(CLIPPED, slide) == [], slide.get_attribute("id")
    small = page.execute_script(
        "return [...document.querySelectorAll('.body .p, .body li, .body td')].filter(e => e.offsetHeight)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)).sort((a, b) => a - b)[0]"
    )
    assert small >= 12
    assert page.get_log("browser") == []


def test_deck__fetches_nothing_and_every_picture_is_there(driver: Any, decks: dict[str, Path]) -> None:
    page = opened(driver, decks["as it is"], 1280, 720)
    names = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in names if not name.startswith("data:")] == []
    pictures = page.execute_script("return [...document.images].map(i => [i.alt, i.complete && i.naturalWidth > 0])")
    assert all(loaded for _, loaded in pictures), pictures


def test_keys__move_and_stop_at_the_ends(driver: Any, decks: dict[str, Path]) -> None:
    page = opened(driver, decks["as it is"], 1280, 720)
    names = [slide.get_attribute("id") for slide in slides(page)]
    place = page.find_element("id", "place")
    assert shown(page) == names[:1] and place.text == f"1 / {len(names)}"
    press(page, RIGHT)
    assert shown(page) == names[1:2]
    press(page, " ")
    assert shown(page) == names[2:3] and page.current_url.endswith("#3")
    press(page, LEFT)
    assert shown(page) == names[1:2]
    press(page, END)
    press(page, RIGHT)
    assert shown(page) == names[-1:] and place.text == f"{len(names)} / {len(names)}"
    press(page, HOME)
    press(page, LEFT)
    assert shown(page) == names[:1]
    page.find_element("id", "next").click()
    assert shown(page) == names[1:2]


def test_address__opens_the_slide_it_names(driver: Any, decks: dict[str, Path]) -> None:
    page = opened(driver, decks["as it is"], 1280, 720)
    page.get("about:blank")
    page.get(f"{decks['as it is'].as_uri()}#5")
    assert shown(page) == [slides(page)[4].get_attribute("id")]


def test_touch__a_swipe_moves_and_a_scroll_does_not(driver: Any, decks: dict[str, Path]) -> None:
    page = opened(driver, decks["as it is"], 1024, 768)
    names = [slide.get_attribute("id") for slide in slides(page)]

    def swipe(x: int, y: int) -> None:
        start = {"x": 500, "y": 300}
        for kind, points in (
            ("touchStart", [start]),
            ("touchMove", [{"x": 500 + x, "y": 300 + y}]),
            ("touchEnd", []),
        ):
            page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        swipe(-200, 10)
        assert shown(page) == names[1:2]
        swipe(-200, 190)
        assert shown(page) == names[1:2]
        swipe(200, 0)
        assert shown(page) == names[:1]
    finally:
        page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_language__one_key_and_one_button_change_everything(driver: Any, decks: dict[str, Path]) -> None:
    page = opened(driver, decks["as it is"], 1280, 720)
    visible = (
        "return [...document.querySelectorAll(arguments[0])].filter(e => getComputedStyle(e).display !== 'none').length"
    )
    language(page, "en")
    assert page.title == "Attention-CEM: send a feature, not a face"
    assert page.execute_script(visible, ".en") > 100 and page.execute_script(visible, ".zh") == 0
    press(page, "l")
    assert page.title == "Attention-CEM：发出去的是特征，不是脸"
    assert page.execute_script("return document.documentElement.lang") == "zh-Hans"
    assert page.execute_script(visible, ".zh") > 100 and page.execute_script(visible, ".en") == 0
    assert page.find_element("id", "language").text == "English"
    page.find_element("id", "language").click()
    assert page.execute_script(visible, ".zh") == 0


@pytest.mark.parametrize("wanted", ["en", "zh"])
def test_print__one_page_a_slide(driver: Any, decks: dict[str, Path], wanted: str) -> None:
    page = opened(driver, decks["as it is"], 1280, 720)
    language(page, wanted)
    count = len(slides(page))
    made = page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    content = base64.b64decode(made["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", content)) == count
    # 1280 × 720 CSS pixels are 960 × 540 points.
    boxes = set(re.findall(rb"/MediaBox\s*\[([^\]]+)\]", content))
    assert {tuple(round(float(each)) for each in box.split()) for box in boxes} == {(0, 0, 960, 540)}
