"""Receipts in a job's journal, with what the lines share kept only once.

The first receipt of a run becomes the pattern: a record that serves as the dictionary by which all later ones are
compressed. So a system prompt, tools, parameters and the model's facts take a few bytes a line. The ids of an answer
are left out, because its record has them. The receipt is put together, and added to its line, when that is wanted.
"""

import json
import zlib
from collections.abc import Callable, Sequence

from msgspec import msgpack
from msgspec.structs import replace

from ....protocol.errors import RequestError
from ....protocol.parameters.sampling import SamplingParams
from ....protocol.wire import values
from ...receipts.receipt import ClaimedSample, Receipt, View
from ...receipts.written import packed_ids
from .records import Answered, JobState, Pattern, Record

# Bytes of a prompt in a pattern: zlib looks back over 32 KiB, in which the rest of the pattern needs room, too.
_MOST_OF_PROMPT = 16 << 10
_LEVEL, _MEMORY_LEVEL = 6, 5
_SMALLEST_WINDOW, _LARGEST_WINDOW = 10, 15  # bits


class ReceiptKeeper:
    """Asks for receipts, and packs them into the records of a run's answers."""

    def __init__(self, state: JobState, append: Callable[[Record], None]) -> None:
        self._state = state
        self._append = append
        self._asking: tuple[SamplingParams, SamplingParams] | None = None
        self._packers: dict[int, zlib._Compress] = {}  # of the state's pattern, by the bits of their windows

    def asking(self, params: SamplingParams) -> SamplingParams:
        """The parameters, with a receipt; the same object for those that lines share."""
        if params.receipt:
            return params
        if self._asking is None or self._asking[0] is not params:
            self._asking = params, replace(params, receipt=True)
        return self._asking[1]

    def keep(self, record: Answered, receipt: Receipt, view: View, *, is_shown: bool) -> None:
        samples = [replace(sample, token_ids=b"") for sample in receipt.samples]
        packed = msgpack.encode(replace(receipt, samples=samples, view=view))
        if not self._state.pattern:
            self._append(Pattern(_pattern_of(receipt, samples)))
        record.receipt, record.shows_receipt = self._packed(packed), is_shown

    def _packed(self, content: bytes) -> bytes:
        pattern = self._state.pattern
        # The dictionary must lie within the window, and a small one is quicker to copy.
        bits = max(_SMALLEST_WINDOW, min(_LARGEST_WINDOW, (2 * len(pattern) + len(content)).bit_length()))
        if (packer := self._packers.get(bits)) is None:
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -bits, _MEMORY_LEVEL, zdict=pattern)
            self._packers[bits] = packer
        packer = packer.copy()
        return packer.compress(content) + packer.flush()


def _pattern_of(receipt: Receipt, samples: list[ClaimedSample]) -> bytes:
    return receipt.prompt[:_MOST_OF_PROMPT] + msgpack.encode(replace(receipt, prompt=b"", samples=samples))


def receipt_of(record: Answered, pattern: bytes) -> Receipt | None:
    """The whole receipt of an answer; None if its record has none. Raises `RequestError` if it is damaged."""
    if not record.receipt:
        return None
    receipt = Receipt.unpacked(record.receipt, zlib.decompressobj(-_LARGEST_WINDOW, zdict=pattern))
    try:
        said = [packed_ids(ids) for ids in _said(record)]
        samples = [replace(sample, token_ids=ids) for sample, ids in zip(receipt.samples, said, strict=True)]
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise RequestError(f"its record in the journal is damaged: {error}") from error
    return replace(receipt, samples=samples)


def _said(record: Answered) -> list[Sequence[int]]:
    if record.token_ids:
        return [values(packed) for packed in record.token_ids]
    return [sample["token_ids"] for sample in json.loads(record.line)["outputs"]]


def with_receipt(record: Answered, receipt: Receipt) -> bytes:
    """The line of an answer as it is with a receipt, which is the last field of its body."""
    end = b'}},"error":null}\n' if record.token_ids else b"}\n"
    comma, colon = (b", ", b": ") if record.line.startswith(b'{"index": ') else (b",", b":")
    field = comma + b'"receipt"' + colon + b'"' + receipt.text().encode() + b'"'
    if not record.line.endswith(end):
        raise RequestError("its record in the journal is damaged: its line ends in no way that lines end")
    return record.line.removesuffix(end) + field + end
