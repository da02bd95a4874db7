"""A file that is said to be complete is on the disk: it was synced after its last byte and before it took its name."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from builders.cases import for_each

from penstock.frontend.commands.generation.output import output_to
from penstock.frontend.file_replacement import write_whole
from penstock.frontend.http.files.store import FileStore, StoredFile, new_id
from penstock.frontend.http.files.upload import Upload
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.schemas.files import FileObject
from penstock.frontend.jobs.journal.journal import Journal
from penstock.frontend.models.hub.contents import unfinished_content
from penstock.frontend.models.hub.repository import HubFile
from penstock.protocol.files.own_folder import make_own
from penstock.worker.convert.prepared_file import PreparedFile
from penstock.worker.weights.packed.packed_file import WeightWriter

WRITES = ("write", "pwrite", "ftruncate", "fchmod")


def event_of(name: str, file: int | str | Path) -> tuple[str, int]:
    return name, os.fstat(file).st_ino if isinstance(file, int) else os.stat(file).st_ino


@pytest.fixture
def events(monkeypatch) -> list[tuple[str, int]]:
    """Writes, syncs and renames in their order, each with the inode that it was done to."""
    seen: list[tuple[str, int]] = []

    def noted(name: str) -> Callable:
        call = getattr(os, name)

        def note(file, *rest, **options):
            seen.append(event_of(name, file))
            return call(file, *rest, **options)

        return note

    for name in (*WRITES, "fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    return seen


def answers(folder: Path) -> Path:
    with output_to(str(folder / "answers")) as output:
        output.write("one\n")
    return folder / "answers"


def answers_that_were_cut_short(folder: Path) -> Path:
    with suppress(KeyboardInterrupt), output_to(str(folder / "answers")) as output:
        output.write("one\n")
        raise KeyboardInterrupt
    return folder / "answers.partial"


def converted_tensors(folder: Path) -> Path:
    file = PreparedFile(folder / "model.safetensors", b"header", 4)
    file.put(torch.zeros(4, dtype=torch.uint8), 0)
    file.close()
    return folder / "model.safetensors"


def packed_weights(folder: Path) -> Path:
    file = os.open(folder / "packed", os.O_RDWR | os.O_CREAT)
    WeightWriter(file, "packed").finish()
    os.close(file)
    return folder / "packed"


def mark_of_an_own_folder(folder: Path) -> Path:
    make_own(folder / "own", "cache")
    [mark] = (folder / "own").iterdir()
    return mark


def downloaded_content(folder: Path) -> Path:
    blob = folder / "blobs" / "a"
    file = HubFile("config.json", 2, hashlib.sha256(b"{}").hexdigest())
    with unfinished_content(blob, file, lambda num_bytes: None) as descriptor:
        os.write(descriptor, b"{}")
    return blob


def whole_content(folder: Path) -> Path:
    write_whole(folder / "description", b"{}")
    return folder / "description"


def uploaded_content(folder: Path) -> Path:
    upload = Upload(FileStore(folder / "files", HttpOptions()), "", None)
    upload._write_now(bytearray(b"{}"))
    shown = FileObject(id=new_id("file-"), bytes=2, created_at=1, filename="a", purpose="batch", expires_at=2)
    upload._keep_now(StoredFile("", shown))
    return upload._store.content(shown.id)


MAKERS = (
    answers,
    answers_that_were_cut_short,
    converted_tensors,
    packed_weights,
    mark_of_an_own_folder,
    downloaded_content,
    whole_content,
    uploaded_content,
)


@for_each("make", MAKERS)
def test_a_finished_file_was_synced_after_its_last_byte(make, events, tmp_path):
    events.clear()
    inode = make(tmp_path).stat().st_ino
    done = [name for name, touched in events if touched == inode and name != "fchmod"]
    assert any(name in WRITES for name in done), f"nothing was seen to be written: {events}"
    assert [name for name in done if name != "replace"][-1] == "fsync", done
    if "replace" in done:
        assert done[-1] == "replace", done


def journal(folder: Path) -> Path:
    Journal.open(folder / "journal").close()
    return folder / "journal"


@for_each("make", [answers, whole_content, journal])
def test_a_name_comes_before_the_last_sync_of_its_folder(make, events, tmp_path):
    folder = make(tmp_path).parent.stat().st_ino
    named = [place for place, (name, _) in enumerate(events) if name == "replace"]
    synced = [place for place, event in enumerate(events) if event == ("fsync", folder)]
    assert synced and synced[-1] > max(named, default=-1), events


def test_packed_weights_are_synced_before_their_mark(events, tmp_path):
    inode = packed_weights(tmp_path).stat().st_ino
    assert [name for name, touched in events if touched == inode][-3:] == ["fsync", "pwrite", "fsync"]
