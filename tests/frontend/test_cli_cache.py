"""`penstock cache` lists what is kept on disk, and prunes what nobody uses."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.starts import python_path

from penstock.frontend import cli
from penstock.frontend.commands.shared import disk_use
from penstock.protocol.files.cache_folder import cache_folder
from penstock.protocol.files.own_folder import make_own
from penstock.protocol.files.prefix_folder import WHAT, About, PrefixKind

DAY = 86_400
ABOUT = {"rank": 0, "ranks": 1, "kernels": "", "kv_dtype": ""}
HOLD = """
import sys
from pathlib import Path
from penstock.protocol.files.prefix_folder import About, PrefixKind
PrefixKind(Path(sys.argv[1])).hold(About("m", 0, 1, "native", "bf16"))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of prefixes of two models, packed weights, and a converted tokenizer, used 1, 2, 3 and 4 days ago."""
    for name in ("PENSTOCK_CACHE", "HF_HUB_CACHE", "PENSTOCK_LOG_DIR", "PENSTOCK_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(disk_use, "ask_survey", lambda folders: SimpleNamespace(models=[]))  # which takes seconds
    cache = cache_folder()
    for number, model in enumerate(("one", "other")):
        kind = cache / "prefixes" / f"{number}f"
        make_own(kind.parent, WHAT)
        subprocess.run([*command(kind)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        (kind / "about.json").write_text(json.dumps(ABOUT | {"model": model}))
        put(kind / "aa.kv", 1000, 1 + number)
    make_own(cache / "weights", "packed weights")
    put(cache / "weights" / "aabb", 3000, 3)
    make_own(cache / "tokenizers" / "cc", "converted tokenizer")
    put(cache / "tokenizers" / "cc" / "tokenizer.json", 500, 4)
    return cache


def command(kind: Path) -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.path[:0] = {python_path()!r}.split(':'){HOLD}", str(kind)]


def put(path: Path, num_bytes: int, days: float) -> None:
    path.write_bytes(bytes(num_bytes))
    for each in path.parent.iterdir():
        os.utime(each, (time.time(), time.time() - days * DAY))


def penstock(capsys, *words: str) -> tuple[int, str]:
    status = 0
    with suppress(SystemExit):
        status = cli.main(["cache", *words])
    said = capsys.readouterr()
    return status, said.out + said.err


def listed(capsys) -> list[tuple[str, str]]:
    """Kinds and models, without the folder of logs."""
    found = json.loads(penstock(capsys, "--json")[1])
    return [(each["kind"], each["model"]) for each in found if each["kind"] != "logs"]


ALL = [("prefixes", "one"), ("prefixes", "other"), ("weights", "?"), ("tokenizers", "?")]


def test_it_lists_each_thing_with_its_size_and_last_use(cache, capsys):
    assert sorted(listed(capsys)) == sorted(ALL)
    _, said = penstock(capsys)
    [line] = [line for line in said.splitlines() if line.startswith("weights")]
    used = (cache / "weights" / "aabb").stat().st_mtime  # midnight may have passed since
    assert "3 KiB" in line and time.strftime("%Y-%m-%d", time.localtime(used)) in line


def test_prune_removes_by_kind_model_age_and_size_and_says_what_it_freed(cache, capsys):
    _, said = penstock(capsys, "prune", "--older-than", "60h", "--dry-run")
    assert "weights: ?, 3 KiB" in said and "would be freed" in said and len(listed(capsys)) == 4
    for left in ("about.json.7", "bb.writing"):  # by processes that were killed
        (cache / "prefixes" / "1f" / left).touch()
    penstock(capsys, "prune", "other")
    assert ("prefixes", "other") not in listed(capsys) and (cache / "prefixes" / "0f").exists()
    _, said = penstock(capsys, "prune", "--size", "1200")
    assert "4 KiB are freed." in said and listed(capsys) == [("prefixes", "one")]
    penstock(capsys, "prune", "prefixes")
    assert listed(capsys) == [] and (cache / "prefixes" / ".penstock").exists()


def test_what_a_running_process_uses_stays(cache, capsys):
    kind = cache / "prefixes" / "0f"
    with subprocess.Popen(command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        _, said = penstock(capsys, "prune", "prefixes")
        assert "is in use and stays" in said and (kind / "aa.kv").exists()
        assert cli.main(["cache", "prune", "prefixes", "--json"]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["removed"] == [] and "is in use and stays" in printed.err
        holder.stdin.close()
    penstock(capsys, "prune", "prefixes")
    assert not kind.exists()


def test_what_can_not_be_meant_is_refused_with_what_can(cache, capsys):
    for words, expected in {
        ("prune",): "say what to remove",
        ("weights",): "`penstock cache prune weights` removes it",
        ("prune", "nothing"): "neither a kind (prefixes, weights, tokenizers, gguf, digests, downloads) nor",
        ("prune", "logs"): "listed only",
        ("prune", "--older-than", "soon"): "30d",
        ("--size", "1GiB"): "belong to `penstock cache prune`",
    }.items():
        assert expected in penstock(capsys, *words)[1], words
    assert len(listed(capsys)) == 4
    assert "digests, downloads; files and logs are listed only" in " ".join(penstock(capsys, "-h")[1].split())


def test_a_kind_that_is_removed_while_a_tree_begins_to_use_it_is_made_again(tmp_path):
    make_own(tmp_path / "prefixes", WHAT)
    kind = PrefixKind(tmp_path / "prefixes" / "ab")
    kind.hold(About("m", 0, 1, "", ""))
    assert kind.is_in_use and kind.about.model == "m"
