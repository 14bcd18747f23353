"""A real browser, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_kit import SHOTS, programs


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests: it takes a second to start."""
    found = programs()
    if found is None:
        pytest.skip("there is no Chromium with its driver here: scripts/browser.sh installs them")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--disable-gpu", "--js-flags=--expose-gc"):  # fmt: skip
        options.add_argument(word)
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    driver.set_script_timeout(120)
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A window of 1,280 pixels, without cookies; whatever the page complains of fails the test."""
    chromium.set_window_size(1280, 900)
    chromium.get_log("browser")
    yield chromium
    complaints = [line["message"] for line in chromium.get_log("browser") if _bad(line)]
    chromium.delete_all_cookies()  # of the address that it is at
    chromium.get("about:blank")
    assert complaints == []


def _bad(line: dict[str, Any]) -> bool:
    said = str(line["message"])
    return line["level"] == "SEVERE" and "/events" not in said and "401" not in said


@pytest.fixture
def shot(chromium: Any, tmp_path: Path) -> Callable[..., Path]:
    """Take a picture of a section, or of the whole page, for the docs."""

    def take(name: str, selector: str = "", width: int = 1280) -> Path:
        where = (Path(SHOTS) if SHOTS else tmp_path) / f"{name}.png"
        if selector:
            chromium.find_element("css selector", selector).screenshot(str(where))
        else:
            chromium.set_window_size(width, 900)
            tall = chromium.execute_script("return document.documentElement.scrollHeight")
            chromium.set_window_size(width, min(6000, tall + 140))
            chromium.execute_async_script(
                "requestAnimationFrame(() => setTimeout(arguments[0], 300))"
            )
            chromium.save_screenshot(str(where))
        return where

    return take
