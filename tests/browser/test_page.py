"""The report in a real browser: every control works, nothing is loaded, nothing complains."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from nearkv.sweeps.figures.report import report_page
from nearkv.sweeps.study.study import Study

pytestmark = pytest.mark.browser

STUDY = Study(("flexgen-ssd", "flexgen-dram", "hilos"), ("opt-66b",), "16", "16k,64k")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium of Debian, driven by Selenium, on a report that lies on disk."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(report_page(STUDY, "nearkv report"), encoding="utf-8")
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    logs = {"browser": "ALL", "performance": "ALL"}
    options.set_capability("goog:loggingPrefs", logs)
    options.binary_location = str(shutil.which("chromium"))
    service = webdriver.ChromeService(str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    driver.get(file.as_uri())
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def fresh(browser: webdriver.Chrome) -> None:
    """Every test begins with the page as it opens."""
    browser.refresh()


def rows(browser: webdriver.Chrome) -> list[list[str]]:
    """Cells of the table, as a reader sees them, without the button."""
    found = browser.find_elements(By.CSS_SELECTOR, "#body tr")
    return [[cell.text for cell in cells_of(row)][1:] for row in found]


def logged(browser: webdriver.Chrome, kind: str) -> list[dict[str, str]]:
    """Lines that the browser wrote into one of its logs."""
    entries: list[dict[str, str]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return entries


def cells_of(row: WebElement) -> list[WebElement]:
    """The cells of one row."""
    return row.find_elements(By.TAG_NAME, "td")


def column(browser: webdriver.Chrome, name: str) -> int:
    """The place of a column among those shown."""
    heads = browser.find_elements(By.CSS_SELECTOR, "#head button")
    return [head.text.split(" ")[0] for head in heads].index(name)


def test_nothing_is_requested_and_nothing_complains(browser: webdriver.Chrome) -> None:
    sent = [entry["message"] for entry in logged(browser, "performance")]
    requests = [message for message in sent if '"Network.requestWillBeSent"' in message]
    assert all('"url":"file:///' in message or '"url":"data:' in message for message in requests)
    assert logged(browser, "browser") == []


def test_a_head_sorts_both_ways_and_keeps_the_focus(browser: webdriver.Chrome) -> None:
    place = column(browser, "step_ms")
    browser.find_elements(By.CSS_SELECTOR, "#head button")[place].click()
    upwards = [float(row[place].replace(",", "")) for row in rows(browser)]
    assert upwards == sorted(upwards)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    downwards = [float(row[place].replace(",", "")) for row in rows(browser)]
    assert downwards == sorted(upwards, reverse=True)
    head = browser.find_elements(By.CSS_SELECTOR, "#head th")[place + 1]
    assert head.get_attribute("aria-sort") == "descending"


def test_the_filter_keeps_rows_with_all_words(browser: webdriver.Chrome) -> None:
    browser.find_element(By.ID, "filter").send_keys("hilos 65536")
    (row,) = rows(browser)
    assert row[0] == "hilos"
    assert "1 of 6 rows" in browser.find_element(By.ID, "message").text


def test_columns_can_be_shown_and_hidden(browser: webdriver.Chrome) -> None:
    browser.find_element(By.CSS_SELECTOR, ".tools summary").click()
    for box in browser.find_elements(By.CSS_SELECTOR, "#columns label"):
        if box.text.strip() == "energy_j_tok":
            box.click()
    place = column(browser, "energy_j_tok")
    assert all(row[place] for row in rows(browser))


@pytest.mark.parametrize(("button", "begins"), [("copy-csv", "system,"), ("copy-latex", "\\begin")])
def test_the_table_can_be_copied(browser: webdriver.Chrome, button: str, begins: str) -> None:
    browser.execute_script(
        "window.copied = ''; navigator.clipboard.writeText = async (text) => "
        "{ window.copied = text; };"
    )
    browser.find_element(By.ID, button).click()
    copied = browser.execute_script("return window.copied")
    assert copied.startswith(begins)
    assert copied.count("hilos") == 2


def test_a_row_opens_its_time_tree_by_keyboard(browser: webdriver.Chrome) -> None:
    button = browser.find_elements(By.CSS_SELECTOR, "#body button")[-1]
    button.send_keys(Keys.ENTER)
    names = [name.text for name in browser.find_elements(By.CSS_SELECTOR, "#flame b")]
    assert names[0] == "total"
    assert "decode" in names
    shown = [n for n in browser.find_elements(By.CSS_SELECTOR, "#flame b") if n.is_displayed()]
    summaries = browser.find_elements(By.CSS_SELECTOR, "#flame summary")
    closed = [summary for summary in summaries if summary.is_displayed()]
    closed[-1].send_keys(Keys.ENTER)
    after = [n for n in browser.find_elements(By.CSS_SELECTOR, "#flame b") if n.is_displayed()]
    assert len(after) > len(shown)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_never_scrolls_sideways(browser: webdriver.Chrome, width: int) -> None:
    browser.set_window_size(width, 900)
    script = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.execute_script(script) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser: webdriver.Chrome, scheme: str) -> None:
    """Body text and ground differ by at least 7:1 (WCAG AAA)."""
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    script = "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    ink, paper = browser.execute_script(script)
    light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 7


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)` (WCAG 2)."""
    channels = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
