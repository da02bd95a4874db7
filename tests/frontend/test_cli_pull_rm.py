"""`penstock pull` and `penstock rm`, as a person types them."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pexpect
import pytest
from builders.cases import for_each
from builders.daemon import running_daemon
from builders.hub import hub_with_empty_cache, running_hub
from builders.starts import python_path
from builders.terminal import Person
from builders.tiny_model import tiny_model
from huggingface_hub import constants

from penstock.frontend import cli
from penstock.frontend.machine import ask_survey
from penstock.frontend.text import convert_tokenizer
from penstock.protocol.files.cache_folder import cache_folder
from penstock.protocol.files.own_folder import own_folder

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("made") / "tiny", "qwen3")


def test_on_a_terminal_there_is_a_bar_and_ctrl_c_leaves_what_can_be_gone_on_with(made, tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    command = ["-m", "penstock", "pull", "owner/tiny"]
    with running_hub() as hub:
        hub.put("owner/tiny", made)
        kept |= {"HF_ENDPOINT": hub.address, "HF_HUB_CACHE": str(tmp_path / "hub"), "PYTHONPATH": python_path()}
        hub.stops_at[WEIGHTS] = 300_000
        spawned = pexpect.spawn(sys.executable, command, env=kept, dimensions=(24, 200), encoding="utf-8")
        person = Person(spawned, 24, 200)
        person.sees(lambda lines: any("owner/tiny:  66%" in line and "293k/441k" in line for line in lines))
        person.child.sendintr()
        assert person.sees_end() == 128 + signal.SIGINT
        said = " ".join(" ".join(person.lines).split())
        assert "293 KiB of 441 KiB are in the cache, and the same command goes on from there" in said
        assert "Traceback" not in said
        hub.stops_at.clear()
        done = subprocess.run([sys.executable, *command], env=kept, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("owner/tiny is ready: 449 KiB in ")
        first, last = done.stderr.splitlines()  # no terminal, no bar
        assert "1 file of weights, 441 KiB; 293 KiB of them are there, into" in first and "441 KiB are there" in last
        assert hub.ranges(WEIGHTS) == [None, "bytes=300000-"]
    [found] = (tmp_path / "hub").glob(f"models--owner--tiny/snapshots/*/{WEIGHTS}")
    assert found.read_bytes() == (made / WEIGHTS).read_bytes()


@for_each("name, sentence", [
    ("pocket", "nothing to download"), ("ollama:tiny", "download it with that program"),
    *((name, "is not a hub id") for name in ("/no/such", "./folder", "a b")),
])  # fmt: skip
def test_a_name_that_is_no_id_is_not_pulled(name, sentence, capsys):
    assert cli.main(["pull", name]) == 1
    assert sentence in capsys.readouterr().err


@contextmanager
def hub_with_two_models(made: Path, cache: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with hub_with_empty_cache(cache, patch) as running:
        running.put("owner/tiny", made)
        running.put("owner/tiny", made, files={"generation_config.json": b"{}"}, revision="v2")
        running.put("owner/tiny-2", made)
        yield


@pytest.fixture(scope="module")
def pulled(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pulled")
    with pytest.MonkeyPatch.context() as patch, hub_with_two_models(made, folder / "hub", patch):
        assert cli.main(["pull", "owner/tiny", "owner/tiny-2", "--quiet"]) == 0
    return folder / "hub"


@pytest.fixture
def cache(pulled, made, tmp_path, own_cache, monkeypatch):
    """Two models in the hub's cache."""
    shutil.copytree(pulled, tmp_path / "hub", symlinks=True)
    with hub_with_two_models(made, tmp_path / "hub", monkeypatch), TemporaryDirectory(prefix="pr") as runtime:
        monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", runtime)  # a socket's path has 107 bytes at most
        yield tmp_path / "hub"


def test_a_pull_repairs_what_is_broken_and_without_a_network_the_name_is_not_to_blame(cache, made, capsys, monkeypatch):
    [snapshot] = (cache / "models--owner--tiny" / "snapshots").iterdir()
    for name in (WEIGHTS, "config.json", "tokenizer.json"):
        whole = (made / name).read_bytes()
        for broken in (whole[:-1], whole[:-1] + b"x", b""):
            (snapshot / name).resolve().write_bytes(broken)
            assert cli.main(["pull", "owner/tiny", "--quiet"]) == 0, (name, broken)
            assert (snapshot / name).read_bytes() == whole
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    capsys.readouterr()
    assert cli.main(["pull", "owner/other"]) == 1
    assert said(capsys).startswith("penstock: owner/other can't be downloaded: owner/other is not in the cache")


def models_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("models--*"))


def said(capsys) -> str:
    told = capsys.readouterr()
    return told.out + told.err


def test_only_that_model_goes_and_what_was_made_of_it(cache, capsys, monkeypatch):
    [snapshot] = (cache / "models--owner--tiny" / "snapshots").iterdir()
    [survey] = ask_survey([snapshot]).models
    packed = own_folder(cache_folder(), "weights", "packed weights")
    for name in (f"{survey.identity}0123", "f" * 64):
        (packed / name).write_bytes(b"x" * 2048)
    (snapshot / "tokenizer.json").rename(snapshot / "vocab.txt")
    monkeypatch.setattr(convert_tokenizer, "_convert", lambda source, target: (target / "tokenizer.json").touch())
    converted = convert_tokenizer.converted(snapshot)
    capsys.readouterr()
    assert cli.main(["rm", "owner/tiny", "--yes"]) == 0
    told = said(capsys)
    assert "owner/tiny takes 451 KiB:" in told and "451 KiB are freed" in told
    assert models_in(cache) == ["models--owner--tiny-2"]
    assert not (cache / ".locks" / "models--owner--tiny").exists()
    assert (packed / ("f" * 64)).exists() and not (packed / f"{survey.identity}0123").exists()
    assert not converted.exists()


def test_it_asks_and_keeps_what_nobody_agreed_to(cache, capsys, monkeypatch):
    assert cli.main(["rm", "owner/tiny"]) == 1
    assert "Use --yes" in said(capsys)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, status in {"": 1, "no": 1, "n": 1, "y": 0}.items():
        assert len(models_in(cache)) == 2
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        assert cli.main(["rm", "owner/tiny"]) == status
    assert models_in(cache) == ["models--owner--tiny-2"]


def test_a_revision_goes_without_what_another_or_another_model_needs(cache):
    assert cli.main(["pull", "owner/tiny@v2", "--quiet"]) == 0
    repository = cache / "models--owner--tiny"
    twin = cache / "models--older--name"
    shutil.copytree(repository, twin, symlinks=True)
    before = sorted(twin.rglob("*"))
    assert cli.main(["rm", "owner/tiny@v2", "--yes"]) == 0
    [left] = (repository / "snapshots").iterdir()
    assert all(path.is_file() for path in left.iterdir()) and not (repository / "refs" / "v2").exists()
    assert cli.main(["rm", "owner/tiny", "--revision", "main", "--yes"]) == 0
    assert sorted(twin.rglob("*")) == before
    assert models_in(cache) == ["models--older--name", "models--owner--tiny-2"]


def test_nothing_else_is_removed(cache, capsys):
    sentences = {
        "pocket": "comes with Penstock", "ollama:tiny": "remove it with that program",
        **dict.fromkeys(("owner/missing", "owner/tiny@v9"), "is not in the cache"),
        "owner/tinny": "Did you mean owner/tiny?", "owner/tiny:Q4_K_M": "`penstock rm owner/tiny` removes all",
        **dict.fromkeys(("../hub", "/", "owner/.."), "is not a hub id"),
    }  # fmt: skip
    for name, sentence in sentences.items():
        assert cli.main(["rm", name, "--yes"]) == 1, name
        assert sentence in said(capsys), name
        assert len(models_in(cache)) == 2, name


def test_a_link_in_the_cache_to_a_folder_elsewhere_is_left_alone(cache, tmp_path):
    shutil.move(cache / "models--owner--tiny", tmp_path / "elsewhere")
    (cache / "models--owner--tiny").symlink_to(tmp_path / "elsewhere")
    assert cli.main(["rm", "owner/tiny", "--yes"]) == 1
    assert (tmp_path / "elsewhere" / "snapshots").is_dir()


def test_what_is_being_downloaded_or_is_mapped_stays(cache, capsys):
    blobs = cache / "models--owner--tiny" / "blobs"
    with open(blobs / "0.incomplete", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert cli.main(["rm", "owner/tiny", "--yes"]) == 1
        assert "is being downloaded" in said(capsys)
    [snapshot] = (cache / "models--owner--tiny" / "snapshots").iterdir()
    [survey] = ask_survey([snapshot]).models
    with open(own_folder(cache_folder(), "weights", "packed weights") / f"{survey.identity}01", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert cli.main(["rm", "owner/tiny", "--yes"]) == 1
        assert "is in use" in said(capsys)
    assert cli.main(["rm", "owner/tiny", "--yes"]) == 0


def test_what_a_daemon_has_loaded_stays(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    options = ["--load-format", "stand-in", "--max-model-len", "256", "--num-gpu-blocks-override", "32"]
    with running_daemon(folder, "owner/tiny", *options) as daemon:
        with daemon.attach("owner/tiny"):
            assert cli.main(["rm", "owner/tiny", "--yes", "--socket", str(daemon.address)]) == 1
            assert "The daemon has owner/tiny in use (owner/tiny, ready)" in said(capsys)
        assert cli.main(["rm", "owner/tiny-2", "--yes", "--socket", str(daemon.address)]) == 0
    assert models_in(cache) == ["models--owner--tiny"]


def test_a_download_that_broke_off_is_listed_as_such(cache, capsys):
    [snapshot] = (cache / "models--owner--tiny" / "snapshots").iterdir()
    (snapshot / WEIGHTS).resolve().rename(snapshot.parents[1] / "blobs" / "1.incomplete")
    (snapshot / WEIGHTS).unlink()
    cli.main(["models"])
    assert "no: 441 KiB of its weights are downloaded; `penstock pull owner/tiny` resumes" in said(capsys)
