"""The bar that appears by itself where somebody watches, after a second, and leaves nothing."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from longshot import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watch:
    """A bar that notes what is drawn."""

    drawn: list[float]
    closed: bool

    def __init__(self, what: str) -> None:
        Watch.drawn, Watch.closed = [], False

    def draw(self, share: float) -> None:
        Watch.drawn.append(share)

    def close(self) -> None:
        Watch.closed = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_waits_a_second_keeps_its_pace_and_goes(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bar, "place", lambda: Watch)
    Watch.drawn = []
    with bar.watched(None, "x") as tell:
        for now, share in ((0.9, 0.1), (1.0, 0.2), (1.05, 0.3), (1.2, 7.0)):
            clock[0] = now
            tell(share)
    assert Watch.drawn == [0.2, 1.0]
    assert Watch.closed


def test_a_bar_goes_also_when_the_work_fails(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bar, "place", lambda: Watch)

    def work() -> None:
        with bar.watched(None, "x") as tell:
            clock[0] = 2.0
            tell(0.5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert Watch.closed


def test_who_brings_a_callback_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError

    monkeypatch.setattr(bar, "place", refuse)
    seen: list[float] = []
    with bar.watched(seen.append, "x") as tell:
        tell(0.5)
    assert seen == [0.5]


def test_where_a_bar_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert bar.place() is None
    monkeypatch.setattr(sys, "stderr", None)
    assert bar.place() is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert bar.place() is bar.TerminalBar
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert bar.place() is bar.NotebookBar


def test_a_terminal_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    shown = bar.TerminalBar("estimating")
    shown.draw(0.5)
    shown.close()
    assert "estimating" in screen.getvalue()


def test_a_notebook_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    display = pytest.importorskip("IPython.display")
    seen: list[str] = []

    def show(html: Any, display_id: bool) -> Any:
        assert display_id
        return SimpleNamespace(update=lambda html: seen.append(html.data))

    monkeypatch.setattr(display, "display", show)
    shown = bar.NotebookBar("estimating")
    shown.draw(0.25)
    shown.close()
    assert "25%" in seen[0]
    assert seen[-1] == ""
