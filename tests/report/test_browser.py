"""The page in a real browser, opened from disk: Debian's chromium and chromium-driver.

Where they are missing the tests are skipped; under CI they never are.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from longshot.files import write_whole
from longshot.report.evidence import gather
from longshot.report.page import page
from tests.report.synthetic import NASTY, full_page, make_evidence, make_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    "CI" not in os.environ and not (CHROMIUM and DRIVER),
    reason="needs Debian's packages chromium and chromium-driver",
)
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    assert CHROMIUM, "apt-get install chromium"
    assert DRIVER, "apt-get install chromium-driver"
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of mhis there are tuning curves and no estimate yet."""
    models, inputs = ("mini-1l", "mini-2l"), ("hex", "caps")
    run = make_run(models, inputs, ("naive", "qld", "itgis", "mhis"), 12, nasty=True)
    run = replace(run, rows=tuple(row for row in run.rows if row.key.method != "mhis"))
    path = tmp_path_factory.mktemp("page") / "index.html"
    write_whole(path, page(make_evidence(run)))
    return path


def visit(browser: Chrome, path: Path, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("browser", "performance"):
        browser.get_log(log)  # of the page before
    browser.get(path.as_uri())


def requests(browser: Chrome) -> set[str]:
    """Every address that the page asked for."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    return {url for url in asked if not url.startswith("data:")}


def find(browser: Chrome, css: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, css)


def find_all(browser: Chrome, css: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, css)


def show(browser: Chrome, element: WebElement) -> WebElement:
    script = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
    browser.execute_script(script, element)  # type: ignore[no-untyped-call]
    return element


@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_without_an_error_or_a_request(browser: Chrome, small: Path, width: int) -> None:
    visit(browser, small, width)
    assert "closest to the truth" in find(browser, "h1").text
    assert browser.get_log("browser") == []
    assert requests(browser) == {small.as_uri()}
    wide = browser.execute_script("return document.documentElement.scrollWidth")  # type: ignore[no-untyped-call]
    assert wide <= width, "the page itself must not scroll sideways"
    for chart in ("#by-model", "#by-cost", "#plot", "#by-inputs", "#curves", "#ranks"):
        assert find_all(browser, f"{chart} svg path"), chart


@pytest.mark.parametrize("width", WIDTHS)
def test_pointing_at_a_mark_shows_its_token(browser: Chrome, small: Path, width: int) -> None:
    visit(browser, small, width)
    Select(find(browser, "#method")).select_by_value("itgis")
    marks = find_all(browser, "#plot .point")
    assert len(marks) == 12
    tip, seen = find(browser, "#tip"), set()
    assert not tip.is_displayed()
    for mark in marks:
        ActionChains(browser).move_to_element(show(browser, mark)).perform()
        assert tip.is_displayed()
        seen.add(find(browser, "#tip .token").text.split("#")[0].strip())
        text = tip.text
        assert "truth" in text
        assert "±" in text
        assert "itgis" in text
        assert "MACs" in text
        box = tip.rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert "'</script><script>alert(1)</script>'" in seen
    assert len(seen) >= len(NASTY) - 2  # marks may lie on one another
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_heading_sorts_both_ways(browser: Chrome, small: Path, width: int) -> None:
    visit(browser, small, width)
    table = next(f for f in find_all(browser, "figure.table") if f.is_displayed())
    heads = table.find_elements(By.CSS_SELECTOR, "thead button")
    column = [head.text for head in heads].index("itgis") + 1

    def values() -> list[float]:
        cells = table.find_elements(By.CSS_SELECTOR, f"tbody tr td:nth-child({column})")
        return [float(cell.get_attribute("data-value") or "nan") for cell in cells]

    for order in (False, True):
        show(browser, heads[column - 1]).click()
        assert values() == sorted(values(), reverse=order)
        assert len(values()) == 2


@pytest.mark.parametrize("width", WIDTHS)
def test_choosers_change_what_is_drawn(browser: Chrome, small: Path, width: int) -> None:
    visit(browser, small, width)

    def drawing() -> str:
        return find(browser, "#plot").get_attribute("innerHTML") or ""

    before = drawing()
    for name, value in (("model", "mini-2l"), ("inputs", "caps"), ("method", "qld")):
        Select(show(browser, find(browser, f"#{name}"))).select_by_value(value)
        assert drawing() != before, name
        before = drawing()
    show(browser, find(browser, "#fitted button[value=fit]")).click()
    assert drawing() != before
    Select(find(browser, "#method")).select_by_value("all methods")
    assert len(find_all(browser, "#plot .point")) == 3 * 12
    shown = [
        f.get_attribute("data-name") for f in find_all(browser, "figure.table") if f.is_displayed()
    ]
    assert "loss-is-mini-2l" in shown
    assert "loss-is-mini-1l" not in shown
    show(browser, find(browser, "#loss button[value=log]")).click()
    shown = [
        f.get_attribute("data-name") for f in find_all(browser, "figure.table") if f.is_displayed()
    ]
    assert "loss-log-mini-2l" in shown
    assert "loss-is-mini-2l" not in shown
    assert browser.get_log("browser") == []


def test_dark_follows_the_system_and_the_button(browser: Chrome, small: Path) -> None:
    def paper() -> str:
        return find(browser, "body").value_of_css_property("background-color")

    seen = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        visit(browser, small, 1280)
        browser.execute_script("localStorage.clear()")  # type: ignore[no-untyped-call]
        visit(browser, small, 1280)
        seen.append(paper())
    assert seen[0] != seen[1]
    find(browser, "#theme").click()
    assert paper() == seen[0]
    find(browser, "#theme").click()
    assert paper() == seen[1]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize(
    "options",
    [{"rows": False}, {"failed": True}, {"tuned": False}, {"zeros": True}, {"targets": 1}],
)
def test_odd_runs_open_without_an_error(
    browser: Chrome, options: dict[str, object], tmp_path: Path
) -> None:
    arguments = {
        "models": ("m",),
        "inputs": ("hex",),
        "methods": ("itgis",),
        "targets": 3,
        **options,
    }
    write_whole(tmp_path / "odd.html", page(gather(make_run(**arguments))))
    visit(browser, tmp_path / "odd.html", 390)
    assert find(browser, "h1").text
    assert browser.get_log("browser") == []


def test_a_full_study_opens(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    write_whole(path, full_page())
    start = time.perf_counter()
    visit(browser, path, 1280)
    seconds = time.perf_counter() - start
    print(f"\n{path.stat().st_size / 1e6:.1f} MB opened in {seconds:.1f} s")
    assert len(find_all(browser, "#plot .point")) == 64
    assert browser.get_log("browser") == []
    assert path.stat().st_size < 10e6, f"opened in {seconds:.1f} s"
