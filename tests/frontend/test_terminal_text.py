"""Texts on a terminal: words stay whole, also in a window that changes its size, and strangers' names steer nothing.

Nor do these forge a line of a log, or fail where they are printed.
"""

import sys

import pexpect
from builders.cases import for_each
from builders.shell import BOUND, Person
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend import cli
from penstock.frontend.commands import models
from penstock.frontend.commands.repl.wrapping import Wrapper, width_of
from penstock.frontend.console import logs, standard_error
from penstock.frontend.console.printable import on_one_line, printable
from penstock.protocol.survey import ModelSurvey, Survey

WORDS = st.text("abcdefghij,.", min_size=1, max_size=12)
CJK = st.text("这是一个没有空格的句子日本語のテキスト，。「」", min_size=1, max_size=12)
EMOJI = st.sampled_from(["😀", "👩‍👩‍👧", "👍🏽", "❤️", "🇩🇪", "1️⃣", "e\u0301"])
KOREAN = st.text("안녕하세요", min_size=1, max_size=5)
PARTS = st.tuples(st.one_of(WORDS, CJK, EMOJI, KOREAN), st.sampled_from([" ", "  ", "\n", "\n\n"]))
TEXTS = st.lists(PARTS, max_size=30).map(lambda parts: "".join(word + space for word, space in parts))


def wrapped(text: str, columns: int, cuts: list[int] | None = None) -> str:
    wrapper = Wrapper(lambda: columns)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts or []), len(text)]
    return "".join(wrapper.feed(text[start:end]) for start, end in zip(places, places[1:])) + wrapper.flush()


@given(TEXTS, st.integers(26, 60), st.lists(st.integers(0, 1000), max_size=8))
def test_lines_fit_and_nothing_is_lost_however_the_text_comes(text, columns, cuts):
    lines = wrapped(text, columns)
    assert lines == wrapped(text, columns, cuts)
    assert "".join(lines.split()) == "".join(text.split())
    assert all(width_of(line) <= columns for line in lines.split("\n")), lines


@given(st.lists(st.one_of(WORDS, KOREAN, EMOJI), min_size=1, max_size=30), st.integers(14, 60))
def test_no_word_is_broken(words, columns):
    assert wrapped(" ".join(words), columns).split() == " ".join(words).split()
    wrapper = Wrapper(lambda: 10)  # a word longer than a line is written before it ends
    assert [wrapper.feed("a " + "b" * 11), wrapper.feed("bbb c")] == ["a\n" + "b" * 11, "bbb"]


@for_each(
    "text, columns, lines",
    [
        ("one two three", 7, "one two\nthree"),
        ("one two three", 13, "one two three"),
        ("  two spaces, then  more", 12, "  two\nspaces, then\nmore"),
        ("中文字符不断", 4, "中文\n字符\n不断"),
        ("中文字。不断", 6, "中文\n字。不\n断"),
        ("「中文」字", 6, "「中\n文」字"),
        ("안녕하세요 여러분", 12, "안녕하세요\n여러분"),
        ("👩‍👩‍👧👩‍👩‍👧", 8, "👩‍👩‍👧\n👩‍👩‍👧"),
        ("🇩🇪🇫🇷", 4, "🇩🇪\n🇫🇷"),
        ("see https://example.org/a/long/path here", 12, "see\nhttps://example.org/a/long/path here"),
        ("```\na very long line of code\n```\na b c", 6, "```\na very long line of code\n```\na b c"),
        ("`a b c d`", 5, "`a b\nc d`"),
        ("```a b``` c d", 7, "```a\nb``` c\nd"),
        ("| a | b |\n| - | - |", 40, "| a | b |\n| - | - |"),
        ("a\tb c", 10, "a\tb\nc"),
        ("end \nof line", 20, "end\nof line"),
    ],
)
def test_a_text_stands_like_this(text, columns, lines):
    assert wrapped(text, columns) == lines


# Writes an answer a piece for each line that it is sent, as a model would.
WRITER = """
import sys
from penstock.frontend.commands.repl.answer_text import AnswerText
from penstock.frontend.commands.repl.conversation import AnswerDelta
answer = AnswerText(is_coloured=False)
for line in sys.stdin:
    answer.write(AnswerDelta("", line.rstrip("\\n").replace("_", " ")))
answer.end()
print("the end")
"""


def test_words_stay_whole_in_a_window_that_changes_its_size(tmp_path):
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    child = pexpect.spawn(
        sys.executable, [str(script)], dimensions=(24, 30), encoding="utf-8", timeout=BOUND, echo=False
    )
    person = Person(child, 24, 30)
    person.type("".join(f"{piece}\n" for piece in ("The_qui", "ck_brown_fox_jum", "ps_over_the_lazy_dog_and", "_")))
    person.sees(lambda lines: lines == ["The quick brown fox jumps over", "the lazy dog and"])
    person.resizes(24, 20)
    person.type("".join(f"{piece}\n" for piece in ("still_r", "uns_fas", "ter_than_all_的人们", "_")))
    person.sees(lambda lines: lines[1:] == ["the lazy dog and", "still runs faster", "than all 的人们"])
    person.resizes(24, 40)
    person.type("which_is_why_it_wins_the_race\n\x04")
    lines = person.sees(lambda lines: lines[-1] == "the end")
    assert lines[3:5] == ["than all 的人们 which is why it wins the", "race"]
    assert person.sees_end() == 0


ODD = "esc\x1b[2J\rnew\nline\u202egnp\udcff"


def test_what_would_steer_a_terminal_is_shown_and_all_else_stays_as_it_is():
    for text in ("plain", "two\nlines\tand a tab", "你好, café, 👨‍👩‍👧"):
        assert printable(text) == text
    assert printable(ODD) == "esc\\x1b[2J\\rnew\nline\\u202egnp\\udcff"
    assert on_one_line(ODD) == "esc\\x1b[2J\\rnew\\nline\\u202egnp\\udcff"


def test_notices_and_errors_are_shown_so_and_a_writers_own_orders_are_kept(capsys):
    logs.say(f"{ODD} is ready", quiet=False)
    assert cli.main(["generate", "/nowhere/\x1b[2J", "hello"]) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said and "esc\\x1b[2J\\rnew\nline" in said
    standard_error.write("\x1b[K")
    assert capsys.readouterr().err == "\x1b[K"


def test_no_line_of_a_dated_log_begins_but_with_its_time(capsys, monkeypatch):
    monkeypatch.setattr(logs, "_is_dated", True)
    logs.say("Loading a\n2026-11-23T01:02:03.456+00:00 GET /forged 200", quiet=False)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("Loading a") and second.startswith("  2026")


def test_a_model_of_such_a_name_is_one_row_of_the_list(tmp_path, monkeypatch, capsys):
    for name in (ODD, "plain"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    found = [ModelSurvey(refusal="it says \x1b[2J\nof itself")] * 2
    survey = Survey(available_bytes=0, families=[], models=found, torch=None)
    monkeypatch.setattr(models, "ask_survey", lambda folders, with_torch: survey)
    cli.main(["models", str(tmp_path)])
    _, *rows, _, _ = capsys.readouterr().out.splitlines()
    assert [row.split("/")[-1].split()[0] for row in rows] == [on_one_line(ODD), "plain"]
    assert all(row.endswith("it says \\x1b[2J\\nof itself") for row in rows)
