"""Log-probabilities of the sampled token and of the most likely ones, for requests and for the engine's beam search.

By default they describe the model's own distribution, before masks, penalties and temperature, so they are computed
from logits that the sampler has not overwritten. `logprobs_mode` may ask for the distribution that a token is drawn
from, or for logits instead (`Reported`). Ranks and lists of the most likely tokens break ties by id, like the sampler.
Prompts are computed in pieces, since the logits of a whole step would not fit into memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy

from ...kernels.arrays import DeviceArray
from ...kernels.sampling import RankedLogprobs, Sampling
from ...protocol.messages import Candidates, FailedRow, Logprobs
from ...protocol.wire import column
from ...records import dataclass
from ..device import Device
from ..sampler import FAULTS

# Bytes of logits and results at once: torch's operations temporarily take some five times that.
_PIECE_BYTES = 32 << 20
_NOT_FINITE = FAULTS[1].message


def piece_length(vocab_size: int, num_top: int = 0) -> int:
    """The number of prompt positions that the head computes at once."""
    return max(1, _PIECE_BYTES // (4 * vocab_size + 8 * num_top))


class TokenLogprobs:
    """Log-probabilities being copied to the host. Rows are positions; column 0 is the chosen token, then the top."""

    def __init__(self, found: RankedLogprobs, device: Device) -> None:
        self._copies = [device.host_copy(part) for part in found]

    @property
    def token_ids(self) -> numpy.ndarray:
        """[positions, 1 + most] int32"""
        return self._copies[0]()

    @property
    def logprobs(self) -> numpy.ndarray:
        """[positions, 1 + most] float32"""
        return self._copies[1]()

    @property
    def ranks(self) -> numpy.ndarray:
        """[positions] int32 ranks of the chosen tokens; 1 is the most likely."""
        return self._copies[2]()


class Reported(NamedTuple):
    """What requests are told as log-probabilities."""

    are_processed: bool = False  # of the distribution that the token is drawn from
    are_logits: bool = False

    @classmethod
    def of(cls, logprobs_mode: str) -> "Reported":
        return cls(logprobs_mode.startswith("processed_"), logprobs_mode.endswith("_logits"))


MODEL_LOGPROBS = Reported()


@dataclass(frozen=True)
class LogprobOperations:
    """Computes log-probabilities from logits on their device."""

    ops: Sampling
    device: Device
    reported: Reported = MODEL_LOGPROBS

    def of_tokens(self, logits: DeviceArray, chosen: DeviceArray, num_top: int) -> TokenLogprobs:
        """Compute each row's log-probabilities of its chosen token and of the `num_top` most likely ones."""
        return TokenLogprobs(self.ops.ranked_logprobs(logits, chosen, num_top), self.device)

    def told(self, logits: DeviceArray, chosen: DeviceArray, num_top: int) -> TokenLogprobs:
        """Compute the same for a request, which may be told logits."""
        found = self.ops.ranked_logprobs(logits, chosen, num_top)
        if self.reported.are_logits:
            token_ids = self.device.cast(found.token_ids, numpy.int64)
            rows = self.device.put(numpy.arange(len(logits))[:, None])
            found = found._replace(logprobs=logits[rows, token_ids])
        return TokenLogprobs(found, self.device)

    def of_rows(
        self, logits: DeviceArray, chosen: DeviceArray, owners: numpy.ndarray, num_top: numpy.ndarray
    ) -> Callable[[], list[Logprobs]]:
        """Compute one part per row. Rows with equal counts are computed together, so that one with many slows no
        other."""
        found: list[tuple[numpy.ndarray, TokenLogprobs]] = []
        for most in numpy.unique(num_top).tolist():
            asking = numpy.flatnonzero(num_top == most)
            index = self.device.put(asking)
            of_rows = logits if len(asking) == len(logits) else logits[index]
            found.append((owners[asking], self.told(of_rows, chosen[index], most)))
        return lambda: [part for own, some in found for part in _a_row_each(own, some)]

    def candidates(
        self, logits: DeviceArray, rows: numpy.ndarray, counts: numpy.ndarray
    ) -> Callable[[], tuple[list[Candidates], list[FailedRow]]]:
        """The most likely next tokens of rows that sample nothing, as many as each asks for, or a row's error.

        `rows` maps each row of logits to its row number in the step.
        """
        scanned = self.ops.scan(logits)
        most = min(int(counts.max()), logits.shape[1])
        found, are_finite = self.of_tokens(logits, scanned.best, most), self.device.host_copy(scanned.is_finite)
        return lambda: _candidates_of(found, are_finite(), rows, numpy.minimum(counts, most))


def logprobs_of_prompt(row: int, pieces: list[TokenLogprobs]) -> Callable[[], list[Logprobs]]:
    """Join the pieces of a row's prompt into one part."""

    def parts() -> list[Logprobs]:
        ids, logprobs, ranks = (
            numpy.concatenate([getattr(piece, name) for piece in pieces]) for name in ("token_ids", "logprobs", "ranks")
        )
        return [_part(row, True, ids, logprobs, ranks)]

    return parts


def certainty(found: TokenLogprobs, rows: numpy.ndarray, least: numpy.ndarray) -> Callable[[], bytes]:
    """Pairs of a row and whether its chosen token reached the row's least probability."""

    def pairs() -> bytes:
        return column(numpy.stack((rows, found.logprobs[:, 0] >= least), 1).ravel().tolist())

    return pairs


def _a_row_each(owners: numpy.ndarray, found: TokenLogprobs) -> Iterator[Logprobs]:
    ids, logprobs, ranks = found.token_ids, found.logprobs, found.ranks
    for index, owner in enumerate(owners.tolist()):
        own = slice(index, index + 1)
        yield _part(owner, False, ids[own], logprobs[own], ranks[own])


def _part(
    owner: int, is_prompt: bool, token_ids: numpy.ndarray, logprobs: numpy.ndarray, ranks: numpy.ndarray
) -> Logprobs:
    return Logprobs(
        owner=owner,
        is_prompt=is_prompt,
        width=token_ids.shape[1],
        token_ids=token_ids.tobytes(),
        logprobs=logprobs.tobytes(),
        ranks=ranks.tobytes(),
    )


def _candidates_of(
    found: TokenLogprobs, are_finite: numpy.ndarray, rows: numpy.ndarray, counts: numpy.ndarray
) -> tuple[list[Candidates], list[FailedRow]]:
    given: list[Candidates] = []
    failed: list[FailedRow] = []
    ids, logprobs = found.token_ids, found.logprobs
    for index, row in enumerate(rows.tolist()):
        if not are_finite[index]:
            failed.append(FailedRow(row, _NOT_FINITE))
            continue
        # Column 0 is the chosen token of those that sample.
        own = slice(1, 1 + int(counts[index]))
        given.append(Candidates(row, ids[index, own].tobytes(), logprobs[index, own].tobytes()))
    return given, failed
