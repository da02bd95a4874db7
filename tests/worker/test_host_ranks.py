"""Ranks on a CPU exchange numbers and arrays, each at its own speed, wherever they meet. Here a thread is a rank."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy
import pytest
from builders.cases import for_each

from penstock.kernels.arrays import BFLOAT16, FLOAT32, DType
from penstock.kernels.cpu.shared_memory import Board
from penstock.protocol.errors import EngineDeadError
from penstock.worker.ranks import host_ranks
from penstock.worker.ranks.host_ranks import HostRanks, Pipes
from penstock.worker.ranks.parallel import Parallel

TURNS, WIDTH = 12, 7
# Their sum depends on the order in which they are added.
PARTS = [numpy.linspace(-1, 1, 21).reshape(3, WIDTH) * 10.0 ** (8 - 5 * rank) for rank in range(4)]


def found_by_ranks(size: int, path: Path, task: Callable[[HostRanks], Any]) -> list[Any]:
    def one(rank: int) -> Any:
        ranks = HostRanks.meet(rank, size, path)
        found = task(ranks)
        ranks.leave()
        return found

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, range(size)))


def in_turns(ranks: HostRanks, dtype: DType) -> list[Any]:
    """What the ranks do together, several times; each comes late in turns of its own."""
    found = []
    for turn in range(TURNS):
        if turn % ranks.size == ranks.rank:
            sleep(0.002)
        own, token = (PARTS[ranks.rank] + turn).astype(dtype), numpy.array([ranks.rank + turn])
        ranks.broadcast(token)
        gathered = ranks.all_gather(own[:, slice(*ranks.span(WIDTH))], WIDTH)
        found.append([ranks.exchange([turn, ranks.rank]), token, gathered, ranks.all_reduce(own)])
    return found


@for_each("size", [2, 3, 4])
@for_each("dtype", [FLOAT32, BFLOAT16])
def test_they_have_the_same_sums_parts_and_tokens_in_a_folder_of_any_name_with_anything_left(size, dtype, tmp_path):
    folder = tmp_path / "a folder of ranks, ä" / ("long" * 30)  # longer than a socket's name may be
    folder.mkdir(parents=True)
    left = Pipes(0, size, folder / "ranks")  # of those who never left
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Board, "_BYTES", 16)  # so that arrays take several pieces
        found = found_by_ranks(size, folder / "ranks", partial(in_turns, dtype=dtype))
    left.close()
    for of_rank in found:
        for turn, (numbers, token, gathered, total) in enumerate(of_rank):
            parts = [(part + turn).astype(dtype) for part in PARTS[:size]]
            expected = parts[0]
            for part in parts[1:]:
                expected = expected + part
            spans = [slice(*Parallel(rank, size).span(WIDTH)) for rank in range(size)]
            columns = numpy.concatenate([part[:, span] for part, span in zip(parts, spans, strict=True)], -1)
            assert (numbers, token) == ([[turn, rank] for rank in range(size)], turn)
            assert gathered.dtype == total.dtype == dtype
            assert gathered.tobytes() == columns.tobytes() and total.tobytes() == expected.tobytes()


def test_a_rank_that_never_comes_is_named_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(host_ranks, "_MINUTES", 0)
    with pytest.raises(EngineDeadError, match="Rank 1 has waited .* minutes for rank 0, .* Start the model again"):
        HostRanks.meet(1, 2, tmp_path / "ranks")
