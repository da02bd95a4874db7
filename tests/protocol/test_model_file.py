"""Files that a model's folder or an owner names: what isn't regular is refused, and what never ends is not read."""

import os
import socket
from pathlib import Path

import pytest
from builders.cases import for_each

from penstock.frontend.daemon.settings import read_settings
from penstock.protocol.errors import ConfigError
from penstock.protocol.files import model_file
from penstock.protocol.files.model_file import read_model_file, read_model_json, read_model_text, require_regular
from penstock.protocol.files.owner_file import MOST_BYTES, read_owner_file

KINDS = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a file without end": lambda path: path.touch() or os.truncate(path, 1 << 36),
}


@for_each("kind", KINDS)
def test_what_is_no_file_of_a_model_is_refused_by_name(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = Path("file")
    KINDS[kind](path)
    regular = [require_regular] if kind != "a file without end" else []
    for read in [read_model_file, read_model_text, read_model_json, *regular]:
        with pytest.raises(ConfigError, match="^file cannot be used: "):
            read(path)


def test_a_file_that_grows_while_it_is_read_is_read_no_further_than_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "MOST_BYTES", 1000)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert len(read_model_file(path)) == 1000
    growing = Path("/proc/self/smaps")  # a regular file of no size
    with pytest.raises(ConfigError, match="longer than"):
        read_model_file(growing)


@for_each("content", [b"{", b"\xff{}", b"[" * 100_000, b"nothing"])
def test_what_is_not_json_is_refused_by_name_and_a_file_that_is_not_there_is_the_callers_affair(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match="file is n"):
        read_model_json(tmp_path / "file")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    for read in (read_model_file, read_model_text, read_model_json, require_regular):
        for name in ("nothing", "broken"):
            with pytest.raises(FileNotFoundError):
                read(tmp_path / name)


def test_an_owners_file_may_be_a_pipe_which_is_read_to_its_end_and_one_without_end_is_refused():
    reading, writing = os.pipe()
    os.write(writing, b"keep_alive = 3\n")
    os.close(writing)
    assert read_owner_file(f"/dev/fd/{reading}") == b"keep_alive = 3\n"
    os.close(reading)
    for device in ("/dev/zero", "/dev/full"):
        with pytest.raises(ConfigError, match=f"{device} is longer than {MOST_BYTES >> 20} MiB"):
            read_settings(device, [], {}, {}, None)
