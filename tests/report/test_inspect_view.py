"""`inspect view` shows an exported log in a real browser: each target, its score and witness."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import longshot as ls
from tests.report.synthetic import make_run
from tests.report.test_browser import browser, pytestmark  # noqa: F401 - a fixture, and a skip

WAIT = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of inspect_ai's own
def test_inspect_view_opens_a_log(tmp_path: Path, browser: Chrome) -> None:  # noqa: F811
    run = make_run(("m",), ("hex",), ("itgis",), 3)
    ls.to_inspect(run, tmp_path / "run.eval")
    port = free_port()
    view = [sys.executable, "-m", "inspect_ai", "view", "--log-dir", str(tmp_path)]
    with open(tmp_path / "server.txt", "w") as said:
        server = subprocess.Popen([*view, "--port", str(port)], stdout=said, stderr=said)
    try:
        address = f"http://127.0.0.1:{port}"
        answered(address, server)
        browser.get(f"{address}/#/logs/run.eval")
        text = shown(browser, "' token2'")
        assert "longshot" in text
        assert "NaN" not in text
        answers = [row.estimate.probability for row in run.rows if row.estimate]
        assert all((f"{p:.3g}" if p else "no hit") in text for p in answers), text
    finally:
        server.terminate()
        server.wait(20)


def answered(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server does."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        assert server.poll() is None, "inspect view has ended"
        try:
            urlopen(address, timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise AssertionError("inspect view does not answer")


def shown(driver: Chrome, words: str) -> str:
    """The page's text, once these words are in it."""

    def text(driver: Chrome) -> str:
        return driver.find_element(By.TAG_NAME, "body").text

    WebDriverWait(driver, WAIT).until(lambda driver: words in text(driver))
    return text(driver)
