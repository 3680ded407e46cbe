"""The site in a real browser: pages load nothing from elsewhere, complain of nothing, and fit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parents[2] / "docs"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu")
PAGES = ("index", "start", "tutorial", "hilos", "figures", "glossary", "own", "not-modelled")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without the pages that take long to make."""
    out = tmp_path_factory.mktemp("site")
    slow = "exclude_patterns=_build,_extensions,gallery.md,api.md"
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-D", slow, str(DOCS), str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.binary_location = str(shutil.which("chromium"))
    service = webdriver.ChromeService(str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_nobody_and_does_not_complain(
    page: str, site: Path, browser: webdriver.Chrome
) -> None:
    browser.get((site / f"{page}.html").as_uri())
    entries = browser.get_log("performance")  # type: ignore[no-untyped-call]
    sent = [e["message"] for e in entries if '"Network.requestWillBeSent"' in e["message"]]
    assert sent
    assert [m for m in sent if '"url":"file:///' not in m and '"url":"data:' not in m] == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_never_scrolls_sideways(
    page: str, width: int, site: Path, browser: webdriver.Chrome
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((site / f"{page}.html").as_uri())
    script = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.execute_script(script) <= 0
