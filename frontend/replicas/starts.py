"""Restarts trees that have died, each in a thread of its own, unless all of them keep dying."""

import threading
from typing import TYPE_CHECKING

from ...protocol.errors import ClosedError, EngineDeadError, PenstockError
from ..console import logs
from ..models.digests import tokenizer_files, weight_files
from ..models.file_stamps import FileStamps, stamps_of
from ..models.model_files import ModelFiles
from .replica import Replica, ReplicaTransport

if TYPE_CHECKING:
    from .replicas import Replicas

# Once every tree has died so many times, one soon after another, none is started again.
_MOST_DEATHS_IN_A_ROW = 4
_END_SECONDS = 10.0  # in which the start of a tree that is given up must end


class Starts:
    def __init__(self, replicas: "Replicas", files: ModelFiles) -> None:
        self._replicas = replicas
        self._files = files
        self._stamps = self._current_stamps()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def died(self, replica: Replica, transport: ReplicaTransport, error: PenstockError) -> None:
        """A tree has died, and its requests have gone elsewhere. Called by its receiving thread."""
        with self._replicas.turn:
            if replica.transport is not transport or replica.is_starting or self._closing.is_set():
                return
            replica.is_starting = True
        if self._is_worth_another(replica, error):
            self.begin(replica)

    def begin(self, replica: Replica) -> None:
        thread = threading.Thread(target=self.start_again, args=(replica,), name="penstock-replica", daemon=True)
        with self._replicas.turn:
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]
            thread.start()

    def _is_worth_another(self, replica: Replica, error: BaseException) -> bool:
        """Count and report a death, or a start that has failed; returns whether the tree is to be started again."""
        every, config = self._replicas.replicas, self._replicas.config
        with self._replicas.turn:
            replica.note_death()
            if self._closing.is_set():
                return False
            is_over = all(each.deaths_in_a_row >= _MOST_DEATHS_IN_A_ROW and not each.is_open for each in every)
            if is_over:
                self._closing.set()
        when = f"in {replica.pause:g} s" if replica.pause else "at once"
        what = "It is not started again, and neither are the others." if is_over else f"It is started again {when}."
        logs.say(f"{self._replicas.name_of(replica)}: {error} {what}", quiet=logs.is_quiet(config.quiet))
        if is_over:
            self._replicas.die(error if isinstance(error, PenstockError) else EngineDeadError(str(error)))
        return not is_over

    def start_again(self, replica: Replica) -> None:
        while not self._closing.wait(replica.pause):
            life = None
            try:
                self._require_same_files()
                replica.begin_life()
                life = replica.transport
                self._make_ready(replica)
                return
            except BaseException as error:
                if life is not None:
                    life.close()
                if not self._is_worth_another(replica, error):
                    return

    def _make_ready(self, replica: Replica) -> None:
        agreed, adapters = self._replicas.plan, self._replicas.adapters
        if self._closing.is_set() or agreed is None:
            raise ClosedError(self._replicas.closed_meanwhile)
        plan = replica.check(agreed)
        self._require_same_files()
        with adapters.change:
            adapters.load_again(replica)
            if self._closing.is_set():
                raise ClosedError(self._replicas.closed_meanwhile)
            replica.is_starting = False  # before it may die again
            self._replicas.open(replica, plan)

    def _require_same_files(self) -> None:
        if self._current_stamps() != self._stamps:
            raise EngineDeadError("The model's files have changed since the other trees read them. Load it again.")

    def _current_stamps(self) -> FileStamps:
        folder, tokenizer_folder = self._files.folder, self._files.tokenizer_folder
        return stamps_of({*weight_files(folder), *tokenizer_files(folder), *tokenizer_files(tokenizer_folder)})

    def close(self) -> None:
        """Start none again; starts that go on end soon."""
        self._closing.set()
        for replica in self._replicas.replicas:
            if not replica.transport.is_ready:
                replica.transport.terminate()
        with self._replicas.turn:
            threads = self._threads
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_END_SECONDS)
