"""A real headless Chromium for tests; without one the tests are skipped and say so."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en-US",
)  # fmt: skip


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """A driver whose console is recorded."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="browser tests need selenium: pip install selenium")
    from selenium.webdriver.chrome.service import Service

    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("browser tests need Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield started
    finally:
        started.quit()


def set_width(driver: Any, width: int) -> None:
    """A window of this width; narrow ones are phones."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def screenshot(driver: Any, path: Path) -> bytes:
    """The whole page as a PNG."""
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    content = base64.b64decode(taken["data"])
    path.write_bytes(content)
    return content
