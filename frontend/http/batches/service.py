"""Files and batches of all clients, as the endpoints of a server use them.

Nothing is written before the first upload, unless the options name a folder. Owners see what is theirs; anything else
looks as if it weren't there.
"""

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.files.own_folder import HeldFolder
from ....protocol.files.user_folders import reason
from ...console import logs
from ...file_replacement import sync_folder
from ...rows.line_forms import LINE_FORMS
from ...session.threads import Threads
from ..answers.errors import ApiError, log
from ..files.store import FileStore, check_after, new_id, page, pieces_of
from ..files.upload import Upload
from ..models import Models
from ..options import HttpOptions
from ..schemas.files import BatchObject, BatchQuery, DeletedFile, FileObject, FileQuery, NewBatch
from .record import BatchRecord
from .schedule import Schedule

_WHAT = "files and batches of clients"
# Batches of an owner that haven't ended, and those that are remembered.
_MOST_WAITING, _MOST_KNOWN = 100, 1000
_READ_BYTES = 64 << 10
_WINDOW = re.compile(r"([0-9]{1,3})([hd])")
_WINDOW_SECONDS = {"h": 3600, "d": 86400}
_LONGEST_WINDOW = 30 * 86400


class Batches:
    def __init__(
        self,
        models: Models,
        options: HttpOptions,
        folder: Path,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Call `start`, and `close` before the models end."""
        self._models = models
        self._options = options
        self._folder = folder
        self._on_change = on_change
        self._clock = clock
        self._threads = Threads("Files", 4, patience=math.inf)
        self._opening = asyncio.Lock()
        self._held: HeldFolder | None = None
        self._open: tuple[FileStore, Schedule] | None = None

    async def start(self) -> None:
        """Go on with the batches of an earlier run; raises `ConfigError` if the folder that the options name can't be
        used."""
        named = self._options.files_folder
        try:
            if named is not None or self._folder.is_dir():
                await self._opened()
        except OSError as error:
            if named is None:
                logs.say(f"No files and batches: {_why(error)}.", quiet=False)
                return
            await self.close()
            raise ConfigError(f"files_folder={named} can't be used: {_why(error)}. Name another folder.") from None

    def change(self, models: Models, options: HttpOptions) -> None:
        self._models, self._options = models, options
        if self._open is not None:
            store, schedule = self._open
            store.options = options
            schedule.change(models, options)

    @property
    def has_unfinished(self) -> bool:
        return self._open is not None and self._open[1].has_unfinished

    async def close(self) -> None:
        """Suspend all batches; they go on when the server starts again."""
        if self._open is not None:
            await self._open[1].close()
        if self._held is not None:
            self._held.let_go()

    async def _opened(self) -> FileStore:
        async with self._opening:
            if self._open is None:
                self._open = await self._threads.run(self._open_now)
                self._open[1].start()
            return self._open[0]

    def _open_now(self) -> tuple[FileStore, Schedule]:
        with suppress(FileExistsError):  # if it is no folder, what follows says so
            self._folder.parent.mkdir(mode=0o700, parents=True)
        self._held = self._held or HeldFolder(self._folder, _WHAT)
        store = FileStore(self._folder / "files", self._options, self._clock)
        batches = self._folder / "batches"
        schedule = Schedule(batches, store, self._threads, self._models, self._options, self._on_change)
        schedule.read()
        for folder in (self._folder, self._folder.parent):
            sync_folder(folder)
        return store, schedule

    @property
    def _store(self) -> FileStore:
        return self._parts[0]

    @property
    def _schedule(self) -> Schedule:
        return self._parts[1]

    @property
    def _parts(self) -> tuple[FileStore, Schedule]:
        if self._open is None:
            raise ApiError(404, "There are no files and no batches here yet.")
        return self._open

    def figures(self) -> dict[str, int]:
        if self._open is None:
            return {"stored_bytes": 0, "batches_unfinished": 0, "batches_running": 0}
        store, schedule = self._open
        unfinished = sum(not record.has_ended for record in schedule.records.values())
        return {
            "stored_bytes": store.used.total(),
            "batches_unfinished": unfinished,
            "batches_running": schedule.num_running,
        }

    # --- files -------------------------------------------------------------------------------------------------------

    async def upload(self, owner: str) -> Upload:
        try:
            return Upload(await self._opened(), owner, self._threads)
        except OSError as error:
            log.error("files can't be kept in %s: %s", self._folder, error)
            raise ApiError(503, f"This server can't keep files: {_why(error)}.") from None

    async def files(self, owner: str, query: FileQuery) -> tuple[list[FileObject], bool]:
        check_after(query.after, "file-")
        return ([], False) if self._open is None else self._store.listing(owner, query)

    async def file(self, owner: str, file_id: str) -> FileObject:
        return self._store.find(file_id, owner).shown

    async def content(self, owner: str, file_id: str) -> tuple[FileObject, Iterator[bytes]]:
        file = self._store.find(file_id, owner)
        opened = await self._threads.run(self._store.opened, file_id)
        return file.shown, pieces_of(opened, _READ_BYTES)

    async def delete_file(self, owner: str, file_id: str) -> DeletedFile:
        file = self._store.find(file_id, owner)
        self._store.forget(file)
        await self._threads.run(self._store.remove, file)
        return DeletedFile(id=file_id)

    # --- batches -----------------------------------------------------------------------------------------------------

    async def create(self, owner: str, new: NewBatch) -> BatchObject:
        if new.endpoint not in LINE_FORMS:
            sentence = f"endpoint={new.endpoint!r}: must be one of {', '.join(LINE_FORMS)}."
            raise ApiError(400, sentence, param="endpoint")
        seconds = _window_seconds(new.completion_window)
        file = self._store.find(new.input_file_id, owner)
        if file.shown.purpose != "batch":
            raise ApiError(400, "input_file_id: it names the output of a batch.", param="input_file_id")
        self._store.check_quota(owner)
        self._make_room(owner)
        now = int(self._clock())
        shown = BatchObject(
            id=new_id("batch_"),
            endpoint=new.endpoint,
            input_file_id=file.shown.id,
            completion_window=new.completion_window,
            status="validating",
            created_at=now,
            expires_at=now + seconds,
            metadata=new.metadata,
        )
        life = new.output_expires_after.seconds if new.output_expires_after is not None else None
        record = BatchRecord(owner, shown, life)
        try:
            await self._schedule.add(record, self._store.content(file.shown.id), file.shown.bytes)
        except OSError as error:
            raise ApiError(507, f"The batch can't be kept: {reason(error)}.") from error
        return self._schedule.shown(record)

    def _make_room(self, owner: str) -> None:
        """Forget the oldest that have ended; raises if too many haven't."""
        own = [record for record in self._schedule.records.values() if record.owner == owner]
        ended = sorted((record for record in own if record.has_ended), key=lambda record: record.shown.id)
        if len(own) - len(ended) >= _MOST_WAITING:
            sentence = f"{_MOST_WAITING} of your batches haven't ended yet. Cancel one, or wait for its end."
            raise ApiError(429, sentence, retry_after=60)
        for record in ended[: max(0, len(own) + 1 - _MOST_KNOWN)]:
            self._schedule.forget(record)

    async def batches(self, owner: str, query: BatchQuery) -> tuple[list[BatchObject], bool]:
        check_after(query.after, "batch_")
        if self._open is None:
            return [], False
        schedule = self._schedule
        own = [schedule.shown(record) for record in schedule.records.values() if record.owner == owner]
        return page(own, query.after, query.limit, is_ascending=False)

    async def batch(self, owner: str, batch_id: str) -> BatchObject:
        return self._schedule.shown(self._record(owner, batch_id))

    async def cancel(self, owner: str, batch_id: str) -> BatchObject:
        record = self._record(owner, batch_id)
        status = record.shown.status
        if status not in ("cancelling", "cancelled"):
            if record.has_ended or status == "finalizing":
                raise ApiError(409, f"The batch is {status}, so it can't be cancelled any more.")
            await self._schedule.cancel(record)
        return self._schedule.shown(record)

    def _record(self, owner: str, batch_id: str) -> BatchRecord:
        record = self._schedule.records.get(batch_id)
        if record is None or record.owner != owner:
            raise ApiError(404, f"There is no batch {batch_id!r} here. See /v1/batches.")
        return record


def _window_seconds(window: str) -> int:
    found = _WINDOW.fullmatch(window)
    seconds = int(found[1]) * _WINDOW_SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_WINDOW:
        sentence = f"completion_window={shown(window)}: must be hours or days such as 24h, from 1h to 30d."
        raise ApiError(400, sentence, param="completion_window")
    return seconds


def _why(error: OSError) -> str:
    return "another server keeps its files there" if isinstance(error, BlockingIOError) else reason(error)
