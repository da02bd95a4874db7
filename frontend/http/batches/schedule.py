"""The course of all batches: which is checked, answered, finished or suspended when.

Batches of several owners are answered side by side; the next one is the oldest of the owner with the fewest running.
All state changes happen in the server's event loop, and are on the disk before anybody hears of them, so a batch that
a restart interrupts goes on from where it was.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ....protocol.errors import ConfigError, PenstockError
from ...session.threads import Threads
from ..answers.errors import log, without_paths
from ..files.store import LIFE_SECONDS, FileStore, new_id
from ..models import Models, unknown_model
from ..options import HttpOptions
from ..requests.guard import owners
from ..schemas.files import BatchObject, LineFault, LineFaults, RequestCounts
from .input_check import InputCheck
from .record import BatchFolder, BatchRecord
from .running import BatchFailed, RunningBatch

_MOST_RUNNING, _MOST_OF_OWNER = 8, 4
_SWEEP_SECONDS = 30.0
_CLOSE_SECONDS = 5.0


class Schedule:
    def __init__(
        self,
        folder: Path,
        store: FileStore,
        threads: Threads,
        models: Models,
        options: HttpOptions,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when a batch has ended, or waits."""
        self.records: dict[str, BatchRecord] = {}
        self._folder = folder
        self._store = store
        self._threads = threads
        self._writer = Threads("Batches", 1, patience=math.inf)  # one, so that descriptions keep their order
        self._models, self._options, self._owners = models, options, owners(options)
        self._on_change = on_change
        self._running: dict[str, RunningBatch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by batch
        self._arriving: set[str] = set()  # batches whose folders are being made
        self._sweeping: asyncio.Task[None] | None = None
        self._is_closed = False

    def read(self) -> None:
        """Read the batches of an earlier run, and remove what a crash has left of others."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            folder = BatchFolder(path)
            try:
                record = folder.read()
            except ConfigError as error:
                log.warning("%s", error)
                continue
            if record is not None:
                self.records[record.shown.id] = record
                if record.has_ended:  # perhaps just before a crash
                    folder.clear()
                else:
                    folder.count(record.shown)
                    self._store.hold(record.shown.input_file_id, record.owner, folder.input_bytes())
                    self._count_journal(record)
            elif path.name.startswith("batch_"):
                folder.remove()

    def start(self) -> None:
        self._sweeping = asyncio.create_task(self._sweep())

    def change(self, models: Models, options: HttpOptions) -> None:
        """New options; batches of keys that aren't admitted any more wait until they are."""
        self._models, self._options, self._owners = models, options, owners(options)
        for batch_id, running in list(self._running.items()):
            if running.record.owner not in self._owners:
                self._tasks[batch_id].cancel()
        self._go_on()

    async def close(self) -> None:
        """Suspend all batches."""
        self._is_closed = True
        tasks = [task for task in (*self._tasks.values(), self._sweeping) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    @property
    def has_unfinished(self) -> bool:
        return any(not record.has_ended for record in self.records.values())

    @property
    def num_running(self) -> int:
        return len(self._running)

    async def add(self, record: BatchRecord, source: Path, num_bytes: int) -> None:
        """Add a batch whose input has so many bytes. Raises OSError if it can't be kept."""
        batch_id, file_id, folder = record.shown.id, record.shown.input_file_id, self._folder_of(record)
        self.records[batch_id] = record
        self._arriving.add(batch_id)
        self._store.hold(file_id, record.owner, num_bytes)
        try:
            await self._writer.run(folder.begin, msgspec.json.encode(record), source)
        except BaseException:  # also of a client that has gone, while the folder is made
            del self.records[batch_id]
            self._store.let_go(file_id)
            self._writer.submit(folder.remove)
            raise
        finally:
            self._arriving.remove(batch_id)
        self._go_on()

    async def cancel(self, record: BatchRecord) -> None:
        """Stop one that hasn't ended. Its answers so far are kept."""
        if (task := self._tasks.get(record.shown.id)) is not None:
            task.cancel()
        await self._become(record, "cancelling")
        self._go_on()

    def shown(self, record: BatchRecord) -> BatchObject:
        if (running := self._running.get(record.shown.id)) is not None:
            running.show_count()
        return record.shown

    def forget(self, record: BatchRecord) -> None:
        del self.records[record.shown.id]
        if not record.has_ended:
            self._let_go(record)
        self._writer.submit(self._folder_of(record).remove)

    def _let_go(self, record: BatchRecord) -> None:
        """Count what it has kept no longer."""
        self._store.let_go(record.shown.input_file_id)
        self._store.count_journal(record.shown.id, record.owner, 0)

    def _count_journal(self, record: BatchRecord) -> None:
        self._store.count_journal(record.shown.id, record.owner, self._folder_of(record).journal_bytes())

    def _folder_of(self, record: BatchRecord) -> BatchFolder:
        return BatchFolder(self._folder / record.shown.id)

    # --- whose turn it is --------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Start the batches whose turn it is. One that only has to be checked or to end doesn't wait for a turn."""
        if self._is_closed:
            return
        for record in self._idle():
            if record.shown.status != "in_progress" or record.shown.expires_at <= self._store.clock():
                self._begin(record)
        while len(self._running) < _MOST_RUNNING:
            num_running = Counter(running.record.owner for running in self._running.values())
            ready = [
                record
                for record in self._idle()
                if record.owner in self._owners and num_running[record.owner] < _MOST_OF_OWNER
            ]
            if not ready:
                break
            record = min(ready, key=lambda each: (num_running[each.owner], each.shown.id))
            folder = self._folder_of(record)
            running = RunningBatch(record, folder, self._models, self._options, self._share, self._store)
            self._running[record.shown.id] = running
            self._begin(record)

    def _idle(self) -> list[BatchRecord]:
        busy = self._tasks.keys() | self._arriving
        return [each for name, each in self.records.items() if not each.has_ended and name not in busy]

    def _begin(self, record: BatchRecord) -> None:
        task = self._tasks[record.shown.id] = asyncio.create_task(self._advance(record))
        task.add_done_callback(lambda task: self._paused(record, task))

    def _paused(self, record: BatchRecord, task: asyncio.Task[None]) -> None:
        del self._tasks[record.shown.id]
        if (running := self._running.pop(record.shown.id, None)) is not None:
            running.show_count()
        if not record.has_ended:
            self._count_journal(record)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a batch could not go on; it is tried again later", exc_info=error)
        else:
            self._go_on()
        self._on_change()

    def _share(self, running: RunningBatch, num_rows: int) -> int:
        """Divide rows among the owners whose batches use the same model, and then among each owner's batches. Called
        in jobs' threads."""
        same = [each for each in tuple(self._running.values()) if each.tree is running.tree]
        num_owners = len({each.record.owner for each in same})
        num_own = sum(each.record.owner == running.record.owner for each in same)
        return max(1, num_rows // max(1, num_owners) // max(1, num_own))

    # --- one batch ---------------------------------------------------------------------------------------------------

    async def _advance(self, record: BatchRecord) -> None:
        """Take a batch as far as it goes now; cancelled where it is to wait, or to end."""
        status = record.shown.status
        if status == "validating":
            await self._validate(record)
        elif status == "in_progress" and (running := self._running.get(record.shown.id)) is not None:
            await self._answer(record, running)
        elif status == "in_progress":
            await self._finish(record, "expired")
        else:
            await self._finish(record, "cancelled")

    async def _validate(self, record: BatchRecord) -> None:
        check = InputCheck(record.shown.endpoint, self._options)
        await self._threads.run(check.check, self._folder_of(record).input, client=record.owner)
        faults, model = check.faults, check.model
        if not faults and model is not None:
            names = [card.name for card in await self._models.listing()]
            if model not in names:
                sentence = unknown_model(model, names)
                faults = [LineFault(code="model_not_found", message=sentence, line=1, param="body.model")]
        record.shown.model = model
        record.shown.request_counts = RequestCounts(total=check.num_rows)
        if faults:
            record.shown.errors = LineFaults(data=faults)
            await self._finish(record, "failed")
        else:
            await self._become(record, "in_progress")

    async def _answer(self, record: BatchRecord, running: RunningBatch) -> None:
        try:
            async with asyncio.timeout(record.shown.expires_at - self._store.clock()):
                await running.run()
        except TimeoutError:
            return  # its next turn finds that it is overdue
        except BatchFailed as error:
            fault = LineFault(code=error.code, message=without_paths(str(error)))
            record.shown.errors = LineFaults(data=[fault])
            running.show_count()
            await self._finish(record, "failed")
            return
        running.show_count()
        await self._finish(record, "completed")

    async def _finish(self, record: BatchRecord, outcome: str) -> None:
        """Put the answers that there are into files. The first outcome counts, also where a crash repeats this."""
        if not record.outcome:
            record.outcome = outcome
            record.output_id, record.error_id = new_id("file-"), new_id("file-")
            if outcome == "completed":
                await self._become(record, "finalizing")
            else:
                await self._save(record)
        folder = self._folder_of(record)
        outputs = await self._threads.run(folder.outputs, record, client=record.owner)
        self._store.count_journal(record.shown.id, record.owner, 0)  # its answers count as files from now on
        if outputs.output is not None:
            await self._keep(record, outputs.output, record.output_id, "output")
            record.shown.output_file_id = record.output_id
        if outputs.errors is not None:
            await self._keep(record, outputs.errors, record.error_id, "error")
            record.shown.error_file_id = record.error_id
        await self._become(record, record.outcome)
        await self._threads.run(folder.clear, client=record.owner)

    async def _keep(self, record: BatchRecord, path: Path, file_id: str, kind: str) -> None:
        file = record.output_file(file_id, kind, path.stat().st_size, int(self._store.clock()))
        await self._threads.run(self._store.keep, path, file, client=record.owner)
        self._store.show(file)

    async def _become(self, record: BatchRecord, status: str) -> None:
        record.shown.status = status  # type: ignore[assignment]  # one of them
        setattr(record.shown, f"{status}_at", int(self._store.clock()))
        if record.has_ended:
            self._let_go(record)
        await self._save(record)

    async def _save(self, record: BatchRecord) -> None:
        """Write the description; also if the task is cancelled meanwhile."""
        write = self._folder_of(record).write
        await asyncio.shield(self._writer.run(write, msgspec.json.encode(record)))

    # --- what is over ------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Remove what has expired, and try again what could not go on."""
        while True:
            with suppress(OSError, PenstockError):
                for file in self._store.expired():
                    self._store.forget(file)
                    await self._threads.run(self._store.remove, file)
                for record in list(self.records.values()):
                    # Also one that can't end, for its journal is damaged.
                    is_over = self._store.clock() > record.shown.expires_at + LIFE_SECONDS
                    if is_over and record.shown.id not in self._tasks:
                        self.forget(record)
                self._go_on()
            await asyncio.sleep(_SWEEP_SECONDS)
