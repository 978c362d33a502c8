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
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.files import write_whole
from longshot.report.evidence import gather
from longshot.report.page import page
from tests.report.synthetic import full_page, make_evidence, make_run

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


def run_script(browser: Chrome, script: str, *arguments: object) -> Any:
    return browser.execute_script(script, *arguments)  # type: ignore[no-untyped-call]


def settled(browser: Chrome, css: str) -> WebElement:
    """A chart's figure, in view and drawn."""
    figure = show(browser, find(browser, css))
    WebDriverWait(browser, 20).until(lambda _: figure.get_attribute("data-drawn") == "yes")
    return figure


def wear(browser: Chrome, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


CHARTS = ("loss-by-model-is", "cost-is", "loss-by-distribution-is", "halves-is", "intervals",
          "scatter-raw-mini-1l", "tuning-mini-1l", "truth")  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_chart_is_drawn_without_an_error_or_a_request(
    browser: Chrome, small: Path, width: int, scheme: str
) -> None:
    wear(browser, scheme)
    visit(browser, small, width)
    for chart in CHARTS:
        figure = settled(browser, f'figure[data-chart="{chart}"]')
        assert figure.find_elements(By.CSS_SELECTOR, ".chart svg path"), chart
        assert figure.find_elements(By.CSS_SELECTOR, "details summary"), "its own menu saves it"
        drawing = figure.find_element(By.CSS_SELECTOR, "svg")
        paper = run_script(browser, "return arguments[0].outerHTML.slice(0, 600)", drawing)
        assert ("#ffffff" in paper or "255, 255, 255" in paper) == (scheme == "light"), paper
    assert browser.get_log("browser") == []
    assert requests(browser) == {small.as_uri()}
    wide = run_script(browser, "return document.documentElement.scrollWidth")
    assert wide <= width, "the page itself must not scroll sideways"
    wear(browser, "light")


@pytest.mark.parametrize("width", WIDTHS)
def test_pointing_at_a_mark_shows_its_token(browser: Chrome, small: Path, width: int) -> None:
    visit(browser, small, width)
    figure = settled(browser, 'figure[data-chart="scatter-raw-mini-1l"]')
    marks = figure.find_elements(By.CSS_SELECTOR, ".mark-symbol.role-mark path")
    assert len(marks) == 3 * 2 * 12
    script = """
        const seen = arguments[0].querySelectorAll(".mark-symbol.role-mark path");
        const inside = (b) => b.x > 0 && b.right < innerWidth && b.y > 0 && b.bottom < innerHeight;
        const mark = [...seen].find((m) => inside(m.getBoundingClientRect()));
        const b = mark.getBoundingClientRect(), at = { clientX: b.x + 2, clientY: b.y + 2 };
        for (const kind of ["pointermove", "mousemove", "pointerover", "mouseover"])
            mark.dispatchEvent(new PointerEvent(kind, { bubbles: true, ...at }));
    """
    run_script(browser, script, figure)
    tip = WebDriverWait(browser, 5).until(lambda _: find(browser, "#vg-tooltip-element.visible"))
    for word in ("token", "truth", "estimate", "MACs", "witness"):
        assert word in tip.text
    assert 0 <= tip.rect["x"] < tip.rect["x"] + tip.rect["width"] <= width
    assert not tip.find_elements(By.CSS_SELECTOR, "script")
    assert browser.get_log("browser") == []


def test_a_heading_sorts_both_ways(browser: Chrome, small: Path) -> None:
    visit(browser, small, 1280)
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
def test_choosers_change_what_is_shown(browser: Chrome, small: Path, width: int) -> None:
    visit(browser, small, width)

    def shown(css: str, name: str) -> set[str | None]:
        return {f.get_attribute(name) for f in find_all(browser, css) if f.is_displayed()}

    for key, value in (("model", "mini-2l"), ("fit", "fitted"), ("loss", "log")):
        Select(show(browser, find(browser, f"select[data-key={key}]"))).select_by_value(value)
    charts = shown("figure[data-chart]", "data-chart")
    assert {"scatter-fitted-mini-2l", "loss-by-model-log", "tuning-mini-2l", "truth"} <= charts
    assert not {"scatter-raw-mini-2l", "scatter-fitted-mini-1l", "loss-by-model-is"} & charts
    tables = shown("figure.table", "data-name")
    assert "loss-log-mini-2l" in tables
    assert not {"loss-is-mini-2l", "loss-log-mini-1l"} & tables
    settled(browser, 'figure[data-chart="scatter-fitted-mini-2l"]')
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_targets_are_searched_and_wide_tables_scroll(
    browser: Chrome, small: Path, width: int
) -> None:
    visit(browser, small, width)
    rows = find_all(browser, "#targets tbody tr")
    assert len(rows) == 2 * 2 * 12
    show(browser, find(browser, "#search")).send_keys("alert(1)")
    seen = [row for row in rows if row.is_displayed()]
    assert 0 < len(seen) <= len(rows)  # a witness may hold it too
    assert find(browser, "#found").text == f"{len(seen)} shown"
    box = find(browser, "#targets .scroll")
    wider = run_script(browser, "return arguments[0].scrollWidth > arguments[0].clientWidth", box)
    assert wider or width == 1280
    assert "gradient" in box.value_of_css_property("background-image"), (
        "shadows say that it scrolls"
    )


def test_dark_follows_the_system_and_the_button(browser: Chrome, small: Path) -> None:
    def paper() -> str:
        return find(browser, "body").value_of_css_property("background-color")

    seen = []
    for scheme in ("light", "dark"):
        wear(browser, scheme)
        visit(browser, small, 1280)
        run_script(browser, "localStorage.clear()")
        visit(browser, small, 1280)
        seen.append(paper())
    assert seen[0] != seen[1]
    find(browser, "#theme").click()
    assert paper() == seen[0]
    find(browser, "#theme").click()
    assert paper() == seen[1]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_question_opens(browser: Chrome, tmp_path: Path, width: int) -> None:
    arguments = ["estimate", "--model", "mini-1l", "--target", "quence", "--budget", "512"]
    CliRunner().invoke(
        app, [*arguments, "--html", str(tmp_path / "q.html")], catch_exceptions=False
    )
    visit(browser, tmp_path / "q.html", width)
    settled(browser, "figure[data-chart=estimate]")
    assert "truth" in find(browser, "figure[data-chart=estimate] svg").text
    assert browser.get_log("browser") == []
    assert requests(browser) == {(tmp_path / "q.html").as_uri()}
    assert run_script(browser, "return document.documentElement.scrollWidth") <= width


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
    settled(browser, 'figure[data-chart="scatter-raw-mini-1l"]')
    assert browser.get_log("browser") == []
    assert path.stat().st_size < 10e6, f"opened in {seconds:.1f} s"
