"""The site in a real browser: pages load nothing from elsewhere, complain of nothing, and fit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium import webdriver

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parents[2] / "docs"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu")
PAGES = sorted(page.stem for page in DOCS.glob("*.md"))
BUILT = DOCS.parent / "out" / "site"
"""What `make site` built, which `.ci/run` calls before."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site."""
    if (BUILT / "index.html").exists():
        return BUILT
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(DOCS), str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


class Links(HTMLParser):
    """Targets of links, and names that links may point to, of one page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.targets.append(str(given["href"]))
        self.names |= {str(given[key]) for key in ("id", "name") if given.get(key)}


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    pages = {page.name: Links(page) for page in site.glob("*.html")}
    lost = []
    for name, page in pages.items():
        for target in page.targets:
            if re.match(r"[a-z]+:", target) or target.startswith("_"):
                continue
            file, _, anchor = target.partition("#")
            led = pages.get(file or name)
            if led is None or (anchor and anchor not in led.names):
                lost.append(f"{name} -> {target}")
    assert lost == []


def test_every_page_is_two_clicks_from_home(site: Path) -> None:
    home = {target.partition("#")[0] for target in Links(site / "index.html").targets}
    further = [site / page for page in home if (site / page).is_file()]
    second = {target.partition("#")[0] for page in further for target in Links(page).targets}
    assert {f"{page}.html" for page in PAGES} <= home | second | {"index.html"}


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
    missing = "return [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)"
    browser.execute_script("for (const i of document.images) i.loading = 'eager'")
    assert browser.execute_script(missing) == []
