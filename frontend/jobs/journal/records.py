"""The records of a job's journal, and the state that they add up to.

Everything that a job writes follows from its records: the output, the error file, the status and the ledger. A row is
the number of a prompt in the input. Of several records of one row the last one counts.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ....protocol.messages import Said

_TOKEN_BYTES = 4
_RATE_SECONDS = 60.0  # over which the current speed is measured


class Head(msgspec.Struct, tag="head", array_like=True):
    """The facts that the answers depend on. Another head replaces it once somebody has accepted a change."""

    facts: dict[str, str]
    num_rows: int


class Pattern(msgspec.Struct, tag="pattern", array_like=True):
    """What the receipts of the answers behind it share (`kept_receipts.py`)."""

    content: bytes


class Answered(msgspec.Struct, tag="answered", array_like=True):
    row: int
    line_digest: int  # of the input's line
    status: int  # 200, or an error code as HTTP has it
    num_prompt: int  # tokens
    num_cached: int
    num_output: int
    line: bytes  # as it will be in the output, or in the file of errors
    token_ids: list[bytes] = []  # int32, of each sample, if the line doesn't have them
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0  # of these
    prompt_keys: list[int] = []  # by which a replay finds the answer, if the line doesn't have the prompt
    receipt: bytes = b""  # packed with the last pattern before it; empty in journals of earlier versions
    shows_receipt: bool = False  # in the output
    vector: bytes = b""  # float32, of a job that embeds; its line is the rest of the answer

    @property
    def has_failed(self) -> bool:
        return self.status != 200


class Continued(msgspec.Struct, tag="continued", array_like=True):
    """What the samples of an unfinished answer have said since the row's last such record."""

    row: int
    said: list[Said]


class Forgotten(msgspec.Struct, tag="forgotten", array_like=True):
    """These rows are to be answered again: their lines have changed, or they had failed."""

    rows: list[int]


class Died(msgspec.Struct, tag="died", array_like=True):
    """The model's processes have died while they computed these rows."""

    rows: list[int]
    cause: str


class Began(msgspec.Struct, tag="began", array_like=True):
    """A run of the job has begun."""

    is_daemon: bool
    asked: dict[str, str] = {}  # of its model, as `head.py: asked_of` says


class Progressed(msgspec.Struct, tag="progressed", array_like=True):
    """How far a run is."""

    seconds: float  # since it began
    num_running: int  # rows
    peak_bytes: int  # memory of its processes; 0 where a daemon has them
    joules: float = 0.0  # that the machine has counted since it began; 0 where it doesn't tell


Record = Head | Pattern | Answered | Continued | Forgotten | Died | Began | Progressed

_DECODER = msgspec.msgpack.Decoder(Record)
_ENCODER = msgspec.msgpack.Encoder()


def packed(record: Record) -> bytes:
    return _ENCODER.encode(record)


def unpacked(content: bytes) -> Record:
    record: Record = _DECODER.decode(content)
    return record


class Bits:
    """A set of rows, one bit each."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __contains__(self, row: int) -> bool:
        return row >> 3 < len(self._bytes) and bool(self._bytes[row >> 3] >> (row & 7) & 1)

    def put(self, row: int, is_in: bool) -> bool:
        """Put it in or take it out; returns whether it was in."""
        if row >> 3 >= len(self._bytes):
            self._bytes += bytes((row >> 3) + 1 - len(self._bytes) + 4096)
        was_in = row in self
        if was_in != is_in:
            self._bytes[row >> 3] ^= 1 << (row & 7)
        return was_in


@dataclass(slots=True)
class JobState:
    """The sum of a journal's records."""

    head: Head | None = None
    pattern: bytes = b""  # of the receipts to come; empty before the first
    done: Bits = field(default_factory=Bits)
    failed: Bits = field(default_factory=Bits)
    num_done: int = 0  # the failed ones among them
    num_failed: int = 0
    said: dict[int, list[Said]] = field(default_factory=dict)  # by unfinished row, what each sample has said
    deaths: dict[int, int] = field(default_factory=dict)  # by row that was computed at one
    cause: str = ""  # of the last death
    num_prompt: int = 0  # tokens of all answers, also of those that were forgotten
    num_cached: int = 0
    num_finished: int = 0  # tokens that answers have said at their ends
    num_said: int = 0  # tokens that the unfinished ones have said
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0  # of these
    seconds: float = 0.0  # of earlier runs
    joules_before: float = 0.0  # likewise
    is_daemon: bool = False
    asked: dict[str, str] = field(default_factory=dict)  # by the last run
    now: Progressed = field(default_factory=lambda: Progressed(0.0, 0, 0))
    peak_bytes: int = 0
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)  # seconds of this run; tokens out and in

    @classmethod
    def of(cls, records: Iterable[Record]) -> "JobState":
        """`records` come from `checked_records.py`."""
        state = cls()
        for record in records:
            state.take(record)
        return state

    @property
    def num_rows(self) -> int:
        return 0 if self.head is None else self.head.num_rows

    @property
    def num_output(self) -> int:
        """Tokens that have been computed, and not in vain."""
        return self.num_finished + self.num_said

    @property
    def machine_seconds(self) -> float:
        """Of all runs together."""
        return self.seconds + self.now.seconds

    @property
    def joules(self) -> float:
        """Of all runs together."""
        return self.joules_before + self.now.joules

    @property
    def tokens_per_second(self) -> float:
        """Output tokens of the current run's last minute; of prompts if all of them end in numbers."""
        if len(self._recent) < 2:
            return 0.0
        (begin, *before), (end, *after) = self._recent[0], self._recent[-1]
        kind = 0 if self.num_output else 1
        return (after[kind] - before[kind]) / max(end - begin, 1e-9)

    def take(self, record: Record) -> None:
        match record:
            case Answered():
                self._answered(record)
            case Progressed():
                self._progressed(record)
            case Continued():
                self._continued(record)
            case Pattern():
                self.pattern = record.content
            case Head():
                self.head = record
                self.pattern = b""  # other facts will be shared
                self.said.clear()  # perhaps by another model
                self.num_said = 0
            case Forgotten():
                for row in record.rows:
                    self._mark(row, is_done=False, has_failed=False)
                    self.deaths.pop(row, None)
                    self._drop_said(row)
            case Died():
                self.cause = record.cause
                for row in record.rows:
                    self.deaths[row] = self.deaths.get(row, 0) + 1
            case Began():
                self.seconds += self.now.seconds
                self.joules_before += self.now.joules
                self.is_daemon, self.asked, self.now = record.is_daemon, record.asked, Progressed(0.0, 0, 0)
                self._recent.clear()

    def _answered(self, record: Answered) -> None:
        self._mark(record.row, is_done=True, has_failed=record.has_failed)
        self.deaths.pop(record.row, None)
        self._drop_said(record.row)
        self.num_prompt += record.num_prompt
        self.num_cached += record.num_cached
        self.num_finished += record.num_output
        self.num_draft_tokens += record.num_draft_tokens
        self.num_accepted_tokens += record.num_accepted_tokens

    def _continued(self, record: Continued) -> None:
        said = self.said.setdefault(record.row, [Said(b"") for _ in record.said])
        for whole, new in zip(said, record.said, strict=True):
            whole.token_ids += new.token_ids
            whole.logprobs += new.logprobs
        self.num_said += _num_tokens(record.said)

    def _progressed(self, record: Progressed) -> None:
        self.now = record
        self.peak_bytes = max(self.peak_bytes, record.peak_bytes)
        self._recent.append((record.seconds, self.num_output, self.num_prompt))
        while record.seconds - self._recent[0][0] > _RATE_SECONDS:
            self._recent.popleft()

    def _drop_said(self, row: int) -> None:
        self.num_said -= _num_tokens(self.said.pop(row, []))

    def _mark(self, row: int, *, is_done: bool, has_failed: bool) -> None:
        self.num_done += is_done - self.done.put(row, is_done)
        self.num_failed += has_failed - self.failed.put(row, has_failed)


def _num_tokens(said: list[Said]) -> int:
    return sum(len(each.token_ids) // _TOKEN_BYTES for each in said)
