"""What a command writes: nothing that was there is lost before the new is complete, and nothing finished at all."""

import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace

import pytest
from builders.cases import for_each
from builders.shell import standard_streams, status_of, text_of

from penstock.frontend.commands.generation.output import OutputStream, is_same_file, output_to
from penstock.frontend.commands.repl.files import save
from penstock.protocol.errors import PenstockError


@pytest.fixture
def target(tmp_path) -> Path:
    (path := tmp_path / "answers").write_text("earlier\n")
    return path


def beside(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path != target)


def cut_short(target: Path, *texts: str, by: BaseException | None = None) -> None:
    by = by or KeyboardInterrupt()
    with pytest.raises(type(by)), output_to(str(target)) as output:
        for text in texts:
            output.write(text)
        raise by


def test_a_file_has_its_new_content_at_the_end_and_not_before(target):
    with output_to(str(target)) as output:
        output.write("one\n")
        assert target.read_text() == "earlier\n"
        assert (target.parent / "answers.partial").read_text() == "one\n"  # as soon as it is written
        output.write("two ½\n")
    assert target.read_text("utf-8") == "one\ntwo ½\n" and beside(target) == []
    cut_short(target)
    assert target.read_text("utf-8") == "one\ntwo ½\n" and beside(target) == [], "nothing was finished, nothing is left"
    with output_to(str(target)):
        pass
    assert target.read_text() == "" and beside(target) == []


@for_each("by", [KeyboardInterrupt(), RuntimeError("x"), SystemExit(2), PenstockError("x")])
def test_what_was_finished_is_kept_and_the_person_told_where(tmp_path, by, capsys):
    (target := tmp_path / "answers").write_text("earlier\n")
    cut_short(target, "one\n", "two\n", by=by)
    assert target.read_text() == "earlier\n"
    assert (target.parent / "answers.partial").read_text() == "one\ntwo\n"
    told = capsys.readouterr().err
    assert "2 answers" in told and f"{target}.partial" in told and f"{target} is as it was" in told


def test_what_an_earlier_run_left_is_not_written_over(target, capsys):
    for number in range(3):
        cut_short(target, f"{number}\n")
    assert beside(target) == ["answers.partial", "answers.partial.2", "answers.partial.3"]
    assert [(target.parent / name).read_text() for name in beside(target)] == ["0\n", "1\n", "2\n"]
    assert "answers.partial is of another run" in capsys.readouterr().err


@contextmanager
def a_full_disk() -> Iterator[None]:
    """A limit on a file's size stands in for it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_is_full_leaves_whole_answers_and_no_file_without_any(target):
    with pytest.raises(PenstockError, match="written: File too large"), output_to(str(target)) as output, a_full_disk():
        output.write("x" * 101)
    assert beside(target) == []
    with pytest.raises(PenstockError, match="written: File too large"), output_to(str(target)) as output, a_full_disk():
        for _ in range(5):
            output.write("x" * 39 + "\n")  # a part of the last one still fits
    assert (target.parent / "answers.partial").read_text() == ("x" * 39 + "\n") * 2
    assert target.read_text() == "earlier\n"


def test_a_name_that_cannot_be_taken_keeps_the_complete_content(target, monkeypatch):
    """As a file that is mounted by itself into a container refuses it."""

    def busy(*names: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(PenstockError, match="complete in .*answers.partial"), output_to(str(target)) as output:
        output.write("all\n")
    assert (target.parent / "answers.partial").read_text() == "all\n"


@for_each("mode, has_group", [(0o600, True), (0o640, True), (0o666, True), (0o755, True), (0o664, False)])
def test_the_rights_of_a_file_stay_and_nobody_reads_more_meanwhile(target, mode, has_group, monkeypatch):
    """A new file is its writer's own; a group that it can't be given gets no right."""

    def refuse(file: int, uid: int, gid: int) -> None:
        if gid >= 0:
            raise PermissionError

    if not has_group:
        monkeypatch.setattr(os, "fchown", refuse)
    target.chmod(mode)
    with output_to(str(target)) as output:
        output.write("new\n")
        assert not stat.S_IMODE((target.parent / "answers.partial").stat().st_mode) & ~mode
    assert stat.S_IMODE(target.stat().st_mode) == (mode if has_group else mode & ~0o070)


def test_a_symbolic_link_stays_one(target, tmp_path):
    for name, leads_to in (("link", target), ("dangling", tmp_path / ("½" * 127))):  # a long name has room beside it
        (tmp_path / name).symlink_to(leads_to)
        with output_to(str(tmp_path / name)) as output:
            output.write(name)
        assert (tmp_path / name).is_symlink() and leads_to.read_text() == name


@for_each("name", ["missing/answers", "answers/below", ".", "missing/", "", "answers"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(tmp_path, name, monkeypatch):
    (tmp_path / "answers").write_text("earlier\n")
    if name == "answers":
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # root, as which tests run too, may write anything
    with pytest.raises(OSError):
        output_to(f"{tmp_path}/{name}" if name else "")
    assert (tmp_path / "answers").read_text() == "earlier\n" and beside(tmp_path / "answers") == []


def test_a_conversation_that_cannot_be_saved_costs_no_earlier_one(target):
    talk = SimpleNamespace(messages=[{"role": "user", "content": "x" * 200}])
    target.write_text("[]")
    with a_full_disk():
        assert "cannot be written: File too large" in save(talk, str(target))
    assert target.read_text() == "[]" and beside(target) == []
    talk.messages[0]["content"] = "half a pair \ud800"
    assert "1 message is in" in save(talk, str(target))
    assert json.loads(target.read_text()) == talk.messages


def test_devices_and_pipes_are_written_as_it_comes(tmp_path):
    with output_to("/dev/null") as output:
        output.write("x")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with output_to(str(tmp_path / "pipe")) as output:
        output.write("one\n")
        assert os.read(reader, 100) == b"one\n"
    os.close(reader)
    with pytest.raises(PenstockError, match="/dev/full cannot be written: No space left"):
        output_to("/dev/full").write("x")


def test_a_descriptor_of_ours_by_its_name_is_written_where_it_stands(tmp_path):
    with open(tmp_path / "log", "w+") as file:
        file.write("before\n")
        file.flush()
        for name in (f"/dev/fd/{file.fileno()}", f"/proc/self/fd/{file.fileno()}"):
            output_to(name).write("x\n")
        os.write(file.fileno(), b"after\n")
    assert (tmp_path / "log").read_text() == "before\nx\nx\nafter\n"
    assert isinstance(output_to("/dev/stdout"), OutputStream)
    with pytest.raises(OSError):
        output_to("/dev/fd/987")


def test_a_pipe_that_someone_made_non_blocking_gets_everything():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = "import sys; print(len(sys.stdin.buffer.read()))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=reader, stdout=subprocess.PIPE) as popen:
        os.close(reader)
        OutputStream(writer, "pipe").write("x" * 1_000_000)
        os.close(writer)
        assert popen.stdout.read() == b"1000000\n"


def test_a_file_is_the_same_under_all_of_its_names(target, tmp_path):
    (tmp_path / "soft").symlink_to(target)
    os.link(target, tmp_path / "hard")
    with open(target, "rb") as source:
        for name in ("answers", "soft", "hard"):
            assert is_same_file(source, output_to(str(tmp_path / name)))
        assert is_same_file(source, output_to(f"/dev/fd/{source.fileno()}"))
        assert not is_same_file(source, output_to(str(tmp_path / "other")))
        assert not is_same_file(source, output_to("/dev/null"))
    with open("/dev/null", "rb") as source:
        assert not is_same_file(source, output_to("/dev/null"))


@for_each("words, stdin, stdout", [
    ("--input a --output a", os.devnull, os.devnull), ("--input a --output ./soft", os.devnull, os.devnull),
    ("--input hard --output a", os.devnull, os.devnull),
    ("--input b --output a --trace soft", os.devnull, os.devnull),
    ("--input a --trace hard", os.devnull, os.devnull), ("--input a --record soft", os.devnull, os.devnull),
    ("--input - --output soft", "a", os.devnull), ("--input - --record soft", "a", os.devnull),
    ("--input /dev/stdin --output /dev/stdin", "hard", os.devnull),
    ("--input a", os.devnull, "a"),
])  # fmt: skip
def test_who_reads_what_it_writes_is_refused_and_changes_nothing(words, stdin, stdout, tmp_path, monkeypatch):
    """The last four files were opened by the shell."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_text('"one"\n')
    (tmp_path / "soft").symlink_to("a")
    os.link(tmp_path / "a", tmp_path / "hard")
    with open(stdin, "rb") as source, open(stdout, "ab") as target, TemporaryFile() as said:
        with standard_streams(source.fileno(), target.fileno(), said.fileno()):
            assert status_of("generate", "pocket", *words.split()) == 2
        assert "is also" in text_of(said)
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == dict.fromkeys(("a", "b", "hard", "soft"), '"one"\n')
