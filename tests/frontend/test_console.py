"""Texts on a terminal: a start's table and bar, words that stay whole, and strangers' names that steer nothing."""

import io
import re
import sys

import msgspec
import pexpect
from builders.cases import for_each
from builders.shell import BOUND
from builders.terminal import Person
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend import cli
from penstock.frontend.commands import models
from penstock.frontend.commands.repl.wrapping import Wrapper, width_of
from penstock.frontend.console import logs, progress, standard_error
from penstock.frontend.console.printable import on_one_line, printable
from penstock.frontend.console.progress import StartBar
from penstock.frontend.console.start_table import start_table, start_words
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.stats import StartProgress
from penstock.protocol.survey import ModelSurvey, Survey

PLAN = MemoryPlan("cpu", "a CPU", 0, 0, 0, [GroupPlan("full", 2, 1 << 20, 64)], 512, 512, 10_000, "float32", "float32")


def test_a_second_tier_and_a_named_method_of_drafts_have_rows_where_there_are_some():
    config = EngineConfig.from_options("m", swap_space=0.25)
    table = start_table(config, msgspec.structs.replace(PLAN, groups=[GroupPlan("full", 2, 1 << 20, 64, None, 256)]))
    assert "swap      256 MiB of CPU memory, 8,192 tokens" in table
    assert "swap" not in start_table(config, PLAN)
    kept = EngineConfig.from_options("m", prefix_cache_dir="/kept", prefix_cache_size="3GiB")
    assert "on disk   prefixes, up to 3.0 GiB in /kept" in start_table(kept, PLAN)
    assert "on disk" not in start_table(config, PLAN)
    drafting = EngineConfig.from_options("m", speculative_config={"method": "ngram", "num_speculative_tokens": 4})
    assert "drafts    ngram, up to 4 per step" in start_table(drafting, PLAN)
    assert "drafts" not in start_table(config, PLAN)


def test_each_kind_of_layers_has_a_row_where_there_are_several():
    groups = [GroupPlan("full", 4, 1 << 20, 64), GroupPlan("window", 22, 3 << 20, 40, window=512)]
    groups.append(GroupPlan("state", 1, 50 << 20, 6))
    config = EngineConfig.from_options("m")
    table = start_table(config, msgspec.structs.replace(PLAN, groups=groups))
    assert re.search(r"KV cache +484 MiB float32, total_block_num:64 x 32 = 2,048 tokens", table)
    assert re.search(r"  full +64 MiB for 4 layers, 64 blocks of 32 tokens\n", table)
    assert re.search(r"  window +120 MiB for 22 layers with windows of 512 tokens, 40 blocks of 32 tokens\n", table)
    assert re.search(r"  state +300 MiB for 1 layer, 6 states of 50 MiB\n", table)
    assert "for 2 layers" not in start_table(config, PLAN)


def test_a_start_is_one_line_unless_more_is_asked_for_or_something_is_unusual(monkeypatch):
    config, odd = EngineConfig.from_options("m"), msgspec.structs.replace(PLAN, notes=["Something is odd."])
    line = "penstock is ready: m on a CPU, 64 MiB of memory (64 MiB for total_block_num:64), 512 tokens per request"
    assert start_words(config, PLAN, is_verbose=False) == line
    assert start_words(config, PLAN, is_verbose=True) == start_table(config, PLAN)
    assert start_words(config, odd, is_verbose=False) == start_table(config, odd)
    shared = start_words(EngineConfig.from_options("m", tensor_parallel_size=2), PLAN, is_verbose=False)
    assert "a CPU x 2 ranks, 128 MiB of memory (64 MiB x 2 ranks for" in shared
    assert not logs.is_verbose()
    monkeypatch.setenv("PENSTOCK_LOG", "verbose")
    assert logs.is_verbose() and not logs.is_quiet(False)


@for_each("columns", [60, 40, 24])
def test_in_a_narrow_window_rows_are_broken_between_words(columns):
    config = EngineConfig.from_options("m", max_model_len=512)
    plan = msgspec.structs.replace(PLAN, notes=("A note that is longer than a narrow window, too.",))
    whole, narrow = start_table(config, plan), start_table(config, plan, columns)
    assert narrow.split() == whole.split()  # each word, and each number, whole
    longest = max(len(word) for word in whole.split())
    assert all(len(line) <= max(columns, 12 + longest) for line in narrow.splitlines())
    assert re.search(r"\n  KV cache  .*\n {12}\S", narrow)
    assert start_table(config, plan, 400) == whole


@for_each("is_shown, is_terminal", [(True, True), (False, True), (True, False)])
def test_a_terminal_alone_sees_how_far_a_long_start_is(is_shown, is_terminal, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: is_terminal
    monkeypatch.setattr(progress, "StandardError", lambda: terminal)
    bar = StartBar(is_shown=is_shown)
    for done in (1, 2, 3):
        bar.show(StartProgress("Capturing steps", done, 3))
    text = terminal.getvalue()
    assert ("Capturing steps" in text and "/3" in text) if is_shown and is_terminal else text == ""


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


@for_each("text, columns, lines", [
    ("one two three", 7, "one two\nthree"), ("one two three", 13, "one two three"),
    ("  two spaces, then  more", 12, "  two\nspaces, then\nmore"),
    ("中文字符不断", 4, "中文\n字符\n不断"), ("中文字。不断", 6, "中文\n字。不\n断"),
    ("「中文」字", 6, "「中\n文」字"), ("안녕하세요 여러분", 12, "안녕하세요\n여러분"),
    ("👩‍👩‍👧👩‍👩‍👧", 8, "👩‍👩‍👧\n👩‍👩‍👧"), ("🇩🇪🇫🇷", 4, "🇩🇪\n🇫🇷"),
    ("see https://example.org/a/long/path here", 12, "see\nhttps://example.org/a/long/path here"),
    ("```\na very long line of code\n```\na b c", 6, "```\na very long line of code\n```\na b c"),
    ("```\na b c\n~~~\na b c\n```\na b c", 4, "```\na b c\n~~~\na b c\n```\na b\nc"),
    ("`a b c d`", 5, "`a b\nc d`"), ("```a b``` c d", 7, "```a\nb``` c\nd"),
    ("| a | b |\n| - | - |", 40, "| a | b |\n| - | - |"), ("a\tb c", 10, "a\tb\nc"),
    ("end \nof line", 20, "end\nof line"),
])  # fmt: skip
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
    options = {"dimensions": (24, 30), "encoding": "utf-8", "timeout": BOUND, "echo": False}
    person = Person(pexpect.spawn(sys.executable, [str(script)], **options), 24, 30)
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
