"""One batch on the disk: a folder with its description, its input, and the files of its job.

The description is written as a whole at each change of status, before anybody hears of it.
"""

import os
import shutil
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.files.formats import BATCH
from ...file_replacement import sync_folder, write_whole
from ...jobs.job_files import JobFiles
from ...jobs.journal.records import JobState
from ..files.store import LIFE_SECONDS, StoredFile
from ..schemas.files import BatchObject, BatchUsage, CachedTokens, FileObject
from .input_check import custom_ids

_ENDED = ("completed", "failed", "expired", "cancelled")
# Outcomes after which the error file names the requests that have no answer, and why they have none.
_UNANSWERED = {
    "expired": "This request could not be answered before the completion window expired.",
    "failed": "This request was not answered before the batch failed; the batch's errors say why.",
}


class BatchRecord(msgspec.Struct):
    owner: str
    shown: BatchObject
    output_seconds: int | None = None  # that its output files are kept
    # The output files get these names, also where a crash makes them a second time.
    output_id: str = ""
    error_id: str = ""
    outcome: str = ""  # the status after finalizing
    format: int = BATCH.version

    @property
    def has_ended(self) -> bool:
        return self.shown.status in _ENDED

    def output_file(self, file_id: str, kind: str, num_bytes: int, now: int) -> StoredFile:
        life = LIFE_SECONDS if self.output_seconds is None else self.output_seconds
        shown = FileObject(
            id=file_id,
            bytes=num_bytes,
            created_at=now,
            filename=f"{self.shown.id}_{kind}.jsonl",
            purpose="batch_output",
            expires_at=now + life,
        )
        return StoredFile(self.owner, shown)


class Outputs(NamedTuple):
    output: Path | None
    errors: Path | None


class BatchFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.input = path / "input.jsonl"
        self.output = path / "output.jsonl"
        self._description = path / "batch.json"

    def read(self) -> BatchRecord | None:
        """None if its batch was never announced. Raises `ConfigError` for one that another version keeps."""
        try:
            record = msgspec.json.decode(self._description.read_bytes(), type=BatchRecord)
        except OSError:
            return None
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._description} has an unknown form, and is left alone.") from error
        if record.format != BATCH.version:
            raise ConfigError(f"{self._description}: {BATCH.refusal(record.format)}")
        return record

    def begin(self, description: bytes, source: Path) -> None:
        """A second name of the input keeps it there if its file is deleted."""
        self.path.mkdir(mode=0o700)
        try:
            try:
                os.link(source, self.input)
            except OSError:  # a file system without second names
                shutil.copyfile(source, self.input)
                _sync(self.input)
            self.write(description)
            sync_folder(self.path.parent)
        except OSError:
            self.remove()
            raise

    def input_bytes(self) -> int:
        with suppress(FileNotFoundError):
            return self.input.stat().st_size
        return 0

    def journal_bytes(self) -> int:
        with suppress(OSError, PenstockError):
            return JobFiles.of(self.output).journal.stat().st_size
        return 0

    def write(self, description: bytes) -> None:
        write_whole(self._description, description)

    def outputs(self, record: BatchRecord) -> Outputs:
        """Write the output files from the journal, as far as it goes."""
        files = JobFiles.of(self.output)
        has_journal = files.journal.is_file()
        if has_journal:
            files.write()
        if record.outcome in _UNANSWERED and record.shown.in_progress_at is not None:
            self._add_unanswered(files, record.outcome, "ab" if has_journal else "wb")
        return Outputs(*(path if _has_content(path) else None for path in (files.output, files.errors)))

    def _add_unanswered(self, files: JobFiles, outcome: str, mode: Literal["ab", "wb"]) -> None:
        """Add the requests without an answer to the file of errors."""
        done = files.state().done if files.journal.is_file() else ()
        error = {"code": f"batch_{outcome}", "message": _UNANSWERED[outcome]}
        with open(files.errors, mode) as errors:
            for custom_id in custom_ids(self.input, lambda row: row not in done):
                digits = blake2b(custom_id.encode(), digest_size=12).hexdigest()
                line = {"id": f"batch_req_{digits}", "custom_id": custom_id, "response": None, "error": error}
                errors.write(msgspec.json.encode(line) + b"\n")
        _sync(files.errors)

    def count(self, shown: BatchObject) -> None:
        """Count the rows that are done, of these the failed ones, and their tokens, as far as the journal can be
        read."""
        with suppress(OSError, PenstockError, msgspec.MsgspecError):
            state, counts = JobFiles.of(self.output).state(), shown.request_counts
            counts.completed, counts.failed = state.num_done - state.num_failed, state.num_failed
            shown.usage = usage_of(state)

    def clear(self) -> None:
        """Remove everything but the description."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():  # of an output that a kill has left unfinished
                shutil.rmtree(path)
            elif path != self._description:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def usage_of(state: JobState) -> BatchUsage:
    return BatchUsage(
        input_tokens=state.num_prompt,
        input_tokens_details=CachedTokens(cached_tokens=state.num_cached),
        output_tokens=state.num_finished,
        total_tokens=state.num_prompt + state.num_finished,
    )


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
