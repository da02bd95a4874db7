"""Commands at a real pseudo-terminal: keys in, and what stands on the screen afterwards.

All of them run in one process at one terminal.
"""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
from builders.shell import SLOW, STAND_IN
from builders.terminal import AtTerminal, Terminal

from penstock.frontend.commands.repl import terminal
from penstock.frontend.commands.repl.conversation import AnswerDelta
from penstock.frontend.commands.repl.slash import COMMANDS


@pytest.fixture(scope="module")
def used_terminal(tmp_path_factory) -> Iterator[Terminal]:
    used = Terminal(tmp_path_factory.mktemp("terminal"))
    yield used
    used.close()


@pytest.fixture
def command(used_terminal, tmp_path) -> Iterator[Callable[..., AtTerminal]]:
    """Start a command in a window; the same history for all of one test."""
    started: list[AtTerminal] = []

    def start(*words: object, **options: object) -> AtTerminal:
        surroundings = {"XDG_STATE_HOME": str(tmp_path), **SLOW, **options}
        started.append(used_terminal.start(*words, **surroundings))
        return started[-1]

    yield start
    for person in started:
        person.leaves()


@pytest.fixture
def chat(command, shell_model) -> Callable[..., AtTerminal]:
    """Start a chat that writes an answer so slowly that keys can meet it, and wait for its prompt."""

    def start(*words: object, **options: object) -> AtTerminal:
        person = command("chat", shell_model, *STAND_IN, "--quiet", *words, **options)
        person.sees_prompt()
        return person

    return start


@pytest.fixture
def answered(chat) -> Callable[..., AtTerminal]:
    """Start a chat in which some of a long answer is there."""

    def start(**options: object) -> AtTerminal:
        person = chat(**options)
        person.type("Tell me a long story\r")
        person.sees(lambda lines: len(lines) > 2)
        return person

    return start


def test_ctrl_c_stops_the_answer_and_not_the_program(answered):
    person = answered()
    person.child.sendintr()
    lines = person.sees_prompt()
    assert lines[-2] == "(stopped)"
    assert "^C" not in person.written
    person.type("/stats\r")
    assert any(line.startswith("messages") and "2 in this" in line for line in person.sees_text("KV cache"))
    person.type("Another one\r")
    person.sees_text("> Another one")
    person.child.sendintr()
    person.sees_prompt()


def test_a_ctrl_c_drops_a_line_and_says_at_the_empty_prompt_how_to_leave(chat):
    person = chat()
    person.type("half a line")
    person.sees_text("half a line")
    person.child.sendintr()
    assert person.sees_prompt()[1:] == ["> half a line", ">"]
    person.child.sendintr()
    lines = person.sees(lambda lines: sum("leaves" in line for line in lines) == 2 and lines[-1] == ">")
    assert lines[2:] == [">", "Ctrl-D or /quit leaves, /help lists what else there is.", ">"]
    person.type("/quit\r")
    assert person.sees_end() == 0


@pytest.mark.long  # twenty signals at once have ended the process that all of these tests share
def test_many_ctrl_cs_end_no_more_than_one_does(answered):
    person = answered(lines=80)  # room for a hint after each
    for _ in range(20):
        os.kill(person.child.pid, signal.SIGINT)
    person.sees(lambda lines: any("stopped" in line for line in lines) and lines[-1] == ">")
    # What is typed now might be dropped with a signal that is still on its way, so nothing is.
    assert person.child.isalive()


def test_a_ctrl_c_behind_a_complete_line_drops_no_question(monkeypatch, capsys, tmp_path):
    """It comes when readline has the line already, and Python's `input` has not returned."""
    monkeypatch.setattr(terminal, "_silent_keyboard", nullcontext)
    screen = terminal.Terminal(lambda line: [])
    screen.history = tmp_path / "history"

    def completed(mark: str) -> str:
        monkeypatch.setattr("builtins.input", lambda mark: "asked once more")
        terminal.readline.add_history("A question")
        screen._interrupt(signal.SIGINT, None)
        raise AssertionError("no signal came")

    monkeypatch.setattr("builtins.input", completed)
    before = terminal.readline.get_current_history_length()
    assert screen.read().text == "A question"
    assert terminal.readline.get_current_history_length() == before + 1
    screen.show(AnswerDelta("", "an answer") for _ in range(3))
    assert capsys.readouterr().out == ""


def test_a_pasted_block_and_lines_that_go_on_are_one_message_each(chat, tmp_path):
    person = chat("--max-tokens", "2")
    person.type("\x1b[200~first line\nsecond line\n\n  fourth line\n\x1b[201~")
    person.sees_text("fourth line")
    person.type("\r")
    person.sees_text("cut at 2 tokens")
    person.sees_prompt()
    person.type(f"/save {tmp_path}/saved.json\r")
    person.sees_text("2 messages are in")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert saved[0] == {"role": "user", "content": "first line\nsecond line\n\n  fourth line"}
    person.type("one \\\r")
    person.sees(lambda lines: lines[-1] == "…")
    person.type("two\r")
    lines = person.sees(lambda lines: sum("cut at 2 tokens" in line for line in lines) == 2)
    assert lines[lines.index("> one \\") + 1] == "… two"


def test_a_window_may_change_its_size_in_an_answer_and_in_a_line_and_a_line_typed_ahead_waits(chat):
    person = chat("--max-tokens", "20")
    person.type("Hello\r")
    person.sees(lambda lines: len(lines) > 2)
    person.resizes(30, 50)
    person.type("typed ahead")
    person.sees_text("(cut at 20 tokens")
    assert sum("typed ahead" in line for line in person.sees_text("> typed ahead")) == 1
    person.child.sendintr()
    person.sees_prompt()
    line = "a line that is longer than the narrower window will ever be, " * 2
    person.type(line)
    person.sees(lambda lines: "".join(lines).endswith("be,"))
    person.resizes(30, 120)
    person.type("\x01X\x05Y")  # at its beginning, and at its end
    person.sees_text(f"> X{line[:60]}")
    person.type("\r")
    person.sees(lambda lines: sum("cut at 20" in line for line in lines) == 2)
    person.type("\x1b[A")
    lines = person.sees(lambda lines: lines[-1].endswith("Y"))
    assert "".join(lines[-2:]).endswith(f"> X{line}Y")


def test_the_arrow_up_brings_back_what_an_earlier_chat_was_asked_and_no_color_leaves_every_colour_out(
    chat, used_terminal
):
    first = chat("--max-tokens", "2", NO_COLOR="1")
    first.type("an unlikely question\r")
    first.sees_text("cut at 2")
    first.type("\x04")
    assert first.sees_end() == 0
    assert re.findall(r"\x1b\[[\d;]*m", first.written) == []
    used_terminal.close()  # a readline that has read Ctrl-D breaks the line twice whenever a later one is dropped
    second = chat("--max-tokens", "2")
    second.type("\x1b[A")
    second.sees_text("> an unlikely question")


def test_tab_completes_commands_and_these_change_what_comes_next(chat, shell_model):
    person = chat("--max-tokens", "4", lines=60)
    person.type("/set max_tok\t7\r")
    person.sees_text("> /set max_tokens 7")
    person.sees_text("max_tokens is 7 from the next message on.")
    person.type("Hello\r")
    person.sees_text("(cut at 7 tokens")
    person.type(f"/model {shell_model.parent}/ti\t\r")
    person.sees_text("answers from the next message on")
    person.type("/\t\t")  # twice lists all
    person.sees(lambda lines: all(any(name in line for line in lines) for name in COMMANDS))


def test_a_chat_that_is_told_to_end_leaves_the_terminal_as_it_was(answered):
    person = answered()
    assert not person.child.getecho()
    os.kill(person.child.pid, signal.SIGTERM)
    assert person.sees_end() == 128 + signal.SIGTERM
    assert person.left_echo_on


def test_a_tree_that_dies_ends_the_chat_with_its_cause_and_a_terminal_in_order(chat):
    person = chat(PENSTOCK_FAULTS="worker.step=die@5")
    person.type("Hello\r")
    assert person.sees_end() == 1
    assert "was killed by SIGKILL" in person.written
    assert "Traceback" not in person.written
    assert person.left_echo_on


def test_generate_is_told_what_is_awaited_and_keeps_words_whole(command, shell_model):
    person = command("generate", shell_model, *STAND_IN, "--quiet", "--max-tokens", 80, columns=70)
    person.sees_text("Type prompts, one a line; Ctrl-D on an empty line is the end.")
    before = person.written
    person.type("one\r\x04")
    assert person.sees_end() == 0
    answer = person.written.removeprefix(before)
    assert len(answer) > 40 and answer.endswith("\r\n") and "\x1b[" not in answer
