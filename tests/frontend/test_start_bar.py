"""The bar of a long start."""

from penstock.frontend.console import progress
from penstock.frontend.console.progress import StartBar
from penstock.protocol.stats import StartProgress


class Terminal:
    """As `StandardError`, with what was written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def shown(monkeypatch, *, is_shown: bool, is_terminal: bool = True) -> str:
    terminal = Terminal()
    terminal.isatty = lambda: is_terminal
    monkeypatch.setattr(progress, "StandardError", lambda: terminal)
    bar = StartBar(is_shown=is_shown)
    for done in (1, 2, 3):
        bar.show(StartProgress("Capturing steps", done, 3))
    return terminal.text


def test_a_terminal_sees_how_far_a_start_is(monkeypatch):
    text = shown(monkeypatch, is_shown=True)
    assert "Capturing steps" in text and "/3" in text


def test_nobody_else_does(monkeypatch):
    assert shown(monkeypatch, is_shown=False) == ""
    assert shown(monkeypatch, is_shown=True, is_terminal=False) == ""
