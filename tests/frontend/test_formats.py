"""What an earlier or later version of Penstock has kept is refused in a sentence or made anew, and never misread."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from builders.cases import for_each

from penstock import __version__
from penstock.frontend.http.batches.record import BatchFolder
from penstock.frontend.http.files.store import FileStore
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.schemas.files import BatchObject
from penstock.frontend.jobs.journal.journal import Journal, frame, read_journal
from penstock.frontend.models.gguf import translated
from penstock.frontend.receipts.receipt import Receipt
from penstock.protocol.errors import PenstockError
from penstock.protocol.files.formats import FORMATS
from penstock.protocol.messages import StepResult
from penstock.protocol.processes.recording import Recorder, read_recording
from penstock.worker.disk import segment
from penstock.worker.weights.packed import cache

RECEIPT = Receipt({"model": "m"}, {"seed": 1}, b"\1\0\0\0", [])
OTHERS = (0, 2, 9)
SHOWN = {"bytes": 3, "created_at": 0, "filename": "a.jsonl", "purpose": "batch", "expires_at": 1 << 40}


def journal(folder: Path, version: int) -> object:
    """Opened and read."""
    path = folder / "out.journal"
    path.write_bytes(frame(b"record", 0).replace(b"PJ1", b"PJ%d" % version))
    with pytest.raises(PenstockError) as refused:
        list(read_journal(path))
    content = path.read_bytes()
    with pytest.raises(PenstockError, match=re.escape(str(refused.value))):
        Journal.open(path)
    assert path.read_bytes() == content, "it is left as it is"
    raise refused.value


def receipt(folder: Path, version: int) -> object:
    return Receipt.read(RECEIPT.text().replace("pr1_", f"pr{version}_"))


def batch(folder: Path, version: int) -> object:
    (folder / "batch.json").write_text(json.dumps({"owner": "", "format": version, "shown": _shown_batch()}))
    return BatchFolder(folder).read()


def recording(folder: Path, version: int) -> object:
    Recorder(str(path := folder / "stream"))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"recording 1 ", b"recording %d " % version))
    return list(read_recording(path, StepResult))


def _shown_batch() -> dict:
    made = {"id": "batch_1", "endpoint": "/v1/completions", "input_file_id": "file-1", "status": "completed",
            "completion_window": "24h", "created_at": 1, "expires_at": 2}  # fmt: skip
    required = {each.name for each in msgspec.structs.fields(BatchObject) if each.required}
    return {name: made[name] for name in required}


REFUSED = {"journal": journal, "receipt": receipt, "batch": batch, "recording": recording}


@for_each("kind", REFUSED)
def test_what_cannot_be_made_again_is_refused_with_both_formats_and_left_alone(kind, tmp_path):
    for version in OTHERS:
        with pytest.raises(PenstockError, match=f"has format {version}.* and Penstock .* reads format 1"):
            REFUSED[kind](tmp_path, version)


def test_files_of_another_version_are_left_alone_and_those_of_this_one_are_served(tmp_path, caplog):
    kept = {"file-1": {}, "file-2": {"format": 2}, "file-3": {"shown": 7}}
    for name, changes in kept.items():
        described = {"owner": "", "shown": {**SHOWN, "id": name}, **changes}
        (tmp_path / f"{name}.json").write_text(json.dumps(described))
        (tmp_path / f"{name}.content").write_bytes(b"abc")
    (tmp_path / "file-4.content").write_bytes(b"of a crash")
    store = FileStore(tmp_path, HttpOptions())
    assert store.find("file-1", "").shown.bytes == 3
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{end}" for name in kept for end in ("content", "json")
    }
    assert "has format 2" in caplog.text and "unknown form" in caplog.text


def test_caches_of_another_version_are_made_anew(tmp_path, own_cache, monkeypatch):
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    kept, key = cache.PackedCache.of(model).path, translated._key([model / "config.json"])
    for home, name in ((cache, "PACKED_WEIGHTS"), (translated, "TRANSLATED_GGUF")):
        monkeypatch.setattr(home, name, getattr(home, name)._replace(version=99))
    assert cache.PackedCache.of(model).path != kept and translated._key([model / "config.json"]) != key
    (old := tmp_path / "0.kv").write_bytes(segment._MARK.replace(b"1", b"2") + bytes(100))
    with old.open("rb") as file, pytest.raises(segment.DamagedSegment):
        segment._read_header(file.fileno(), "kind")


def test_every_format_is_a_row_of_the_page_about_releases_and_the_changelog_begins_with_this_version():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "releases.md").read_text()
    assert re.search(r"^## (\S+)", (root / "CHANGELOG.md").read_text(), re.M)[1] == __version__
    for each in FORMATS:
        assert re.search(rf"^\| {re.escape(each.what)} .*\| {each.version} \|", page, re.M), each.what
