"""Starts of users who have no home that they could write to: answers all the same, one notice, nothing in the way."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from builders.starts import ANSWERS, STAND_IN, as_user, needs_root, processes_of, run, without_variables
from builders.watching import is_running

from penstock import LLM, ConfigError
from penstock.frontend.console.logs import log_folder
from penstock.protocol.files import user_folders
from penstock.protocol.files.cache_folder import cache_folder
from penstock.protocol.files.own_folder import MARK
from penstock.protocol.files.user_folders import homes, is_home_usable
from penstock.protocol.processes.runtime_directory import runtime_base

pytestmark = needs_root
NOBODY = 65534
UNKNOWN = 1_000_000 + os.getpid()  # has no entry in the user database, and is nobody else's on this machine
NOTICE = "Logs and caches lie in"


@pytest.fixture
def folder() -> Iterator[Path]:
    """It holds homes of several kinds and a temporary folder; another user can go through it."""
    path = Path(tempfile.mkdtemp(prefix="ph"))
    path.chmod(0o755)
    for name, owner, mode in (("own", UNKNOWN, 0o700), ("read-only", UNKNOWN, 0o500), ("others", 4242, 0o755)):
        (path / name).mkdir()
        (path / name).chmod(mode)
        os.chown(path / name, owner, owner)
    (path / "file").touch()
    (path / "tmp").mkdir()
    (path / "tmp").chmod(0o1777)
    yield path
    assert not processes_of(path / "tmp")
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def leaves_nothing():
    yield
    found = psutil.process_iter(["uids"])  # of one that ends meanwhile there are none
    assert not any(is_running(each.pid) for each in found if each.info["uids"] and each.info["uids"].real == UNKNOWN)
    for path in Path("/tmp").glob(f"penstock-{UNKNOWN}*"):
        shutil.rmtree(path)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_nobody_gets_answers_and_one_notice(folder):
    done = as_user(NOBODY, HOME="/nonexistent", TMPDIR=str(folder / "tmp"))
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0), done.stderr
    assert done.stderr.count(NOTICE) == 1 and "PENSTOCK_CACHE" in done.stderr
    assert (folder / "tmp" / f"penstock-{NOBODY}" / MARK).exists()
    assert not Path("/nonexistent").exists()


def test_root_with_anothers_home_writes_nothing_there(folder):
    """`sudo -E` leaves such an environment."""
    home = str(folder / "others")
    (folder / "roots").mkdir(mode=0o700)
    names = {"HOME": home, "XDG_STATE_HOME": f"{home}/state", "XDG_RUNTIME_DIR": home, "TMPDIR": home}
    names["TEMP"] = str(folder / "roots")
    own = f"import pwd, types; pwd.getpwuid = lambda user: types.SimpleNamespace(pw_dir={str(folder / 'roots')!r})\n"
    done = run(own + ANSWERS, env=without_variables(**names))
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0), done.stderr
    assert files_in(folder / "others") == []
    assert NOTICE not in done.stderr and (folder / "roots" / ".local/state/penstock/logs").is_dir()


def test_root_keeps_nothing_in_anothers_folder_that_it_was_told_of_and_uses_no_home_of_another(folder, monkeypatch):
    for name in ("PENSTOCK_CACHE", "PENSTOCK_LOG_DIR", "PENSTOCK_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder / "others" / "new"))
    monkeypatch.setenv("TMPDIR", str(folder))
    assert cache_folder() == folder / "penstock-0"
    for place, variable in ((log_folder, "PENSTOCK_LOG_DIR"), (runtime_base, "PENSTOCK_RUNTIME_DIR")):
        with pytest.raises(ConfigError, match=f"Set {variable}"):
            place()
    assert files_in(folder / "others") == []
    monkeypatch.setenv("HOME", str(folder / "others"))
    assert next(homes()) == folder / "others" and not is_home_usable()
    monkeypatch.setenv("HOME", str(folder))
    assert is_home_usable()
    for absent in ("", "relative", "/nonexistent", str(folder / "file")):
        monkeypatch.setenv("HOME", absent)
        assert Path(absent) not in homes()
        assert not is_home_usable()


# Name → what the environment says; "{}" is the folder of homes.
HOMELESS = {
    "no HOME": {},
    "an empty HOME": {"HOME": ""},
    "a relative HOME": {"HOME": "home"},
    "a HOME that is missing": {"HOME": "/nonexistent"},
    "a HOME that is a file": {"HOME": "{}/file"},
    "a HOME that cannot be written": {"HOME": "{}/read-only"},
    "another's HOME": {"HOME": "{}/others"},
    "places that cannot be written": {"XDG_STATE_HOME": "/proc", "XDG_RUNTIME_DIR": "/proc", "TMPDIR": "/proc"},
    "another's places": dict.fromkeys(("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "TEMP"), "{}/others"),
    "a cache that cannot be written": {"PENSTOCK_CACHE": "{}/others/cache"},
    "a cache of a user whom nobody knows": {"PENSTOCK_CACHE": "~nobody-knows/cache"},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", HOMELESS)
def test_every_kind_of_homelessness_is_a_start_with_one_notice(kind, folder):
    before = files_in(folder)
    environment = {name: value.format(folder) for name, value in HOMELESS[kind].items()}
    done = as_user(UNKNOWN, cwd=folder, **environment)
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0), done.stderr
    assert len(re.findall(r"lie in /tmp/penstock-", done.stderr)) == 1, done.stderr
    assert files_in(folder) == before


def test_a_machine_where_only_sockets_have_a_place_runs_models_without_logs_and_caches(monkeypatch, capsys):
    """Some containers can be written nowhere else."""
    for name in ("PENSTOCK_LOG_DIR", "PENSTOCK_CACHE", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(user_folders, "homes", list)
    monkeypatch.setattr(user_folders, "_temporary_folders", list)
    with LLM("pocket", **STAND_IN) as llm:
        assert llm.generate([[1, 2]], use_tqdm=False)[0].error_code == 200
    assert capsys.readouterr().err.count("No log is written") == 1
    monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", "")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    with pytest.raises(ConfigError, match="Set PENSTOCK_RUNTIME_DIR"):
        runtime_base()
