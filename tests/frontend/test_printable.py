"""What names and files of strangers say can't steer a terminal, forge a line of a log, or fail where it is printed."""

from builders.cases import for_each

from penstock.frontend import cli
from penstock.frontend.commands import models
from penstock.frontend.console import logs, standard_error
from penstock.frontend.console.printable import on_one_line, printable
from penstock.protocol.survey import ModelSurvey, Survey

ODD = "esc\x1b[2J\rnew\nline\u202egnp\udcff"


@for_each("text", ["plain", "two\nlines\tand a tab", "你好, café, 👨‍👩‍👧"])
def test_what_steers_nothing_stays_as_it_is(text):
    assert printable(text) == text


def test_what_would_steer_a_terminal_is_shown():
    assert printable(ODD) == "esc\\x1b[2J\\rnew\nline\\u202egnp\\udcff"
    assert on_one_line(ODD) == "esc\\x1b[2J\\rnew\\nline\\u202egnp\\udcff"


def test_notices_and_errors_are_shown_so(capsys):
    logs.say(f"{ODD} is ready", quiet=False)
    assert cli.main(["generate", "/nowhere/\x1b[2J", "hello"]) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said and "esc\\x1b[2J\\rnew\nline" in said


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


def test_a_line_that_is_written_keeps_what_the_writer_shows_himself(capsys):
    standard_error.write("\x1b[K")
    assert capsys.readouterr().err == "\x1b[K"
