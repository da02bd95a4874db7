"""Ranks: each holds its share and reads no more, a split that can't work is refused, and they exchange numbers and
arrays, each at its own speed, wherever they meet.
"""

from functools import partial
from time import sleep
from typing import Any

import numpy
import pytest
from builders.cases import for_each
from builders.compared_models import found_by_ranks
from builders.quantized_model import mxfp4_model
from builders.tiny_model import tiny_model

from penstock.kernels.arrays import BFLOAT16, FLOAT32, DType
from penstock.kernels.cpu.shared_memory import Board
from penstock.protocol.errors import ConfigError, EngineDeadError
from penstock.worker.layers.linear import local_kv_heads
from penstock.worker.ranks import host_ranks
from penstock.worker.ranks.host_ranks import HostRanks, Pipes
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model


@for_each("size", [0, 3, 4, 5, 12])
def test_a_size_that_cannot_share_the_heads_is_refused_with_those_that_can(tmp_path, size):
    tiny_model(tmp_path, "llama")  # 6 heads over 2
    with pytest.raises(ConfigError, match=rf"tensor_parallel_size={size} .* Use one of 1, 2, 6\."):
        load_model(tmp_path, ranks=Parallel(0, size))


@for_each("size, heads", [(1, 3), (2, 4), (4, 2), (6, 3)])
def test_every_key_head_is_held_and_ranks_beyond_their_number_share_one(size, heads):
    held = [range(*local_kv_heads(rank, size, heads)) for rank in range(size)]
    assert sorted({head for own in held for head in own}) == list(range(heads))
    assert {len(own) for own in held} == {max(1, heads // size)}


def test_shares_cover_everything_once_and_differ_by_one_at_most():
    for total in (7, 8, 307):
        spans = [range(*Parallel(rank, 3).span(total)) for rank in range(3)]
        assert [each for span in spans for each in span] == list(range(total))
        assert max(map(len, spans)) - min(map(len, spans)) <= 1


def test_a_rank_reads_its_own_share_only(tmp_path):
    tiny_model(tmp_path, "llama", vocab_size=300)
    whole = load_model(tmp_path).report.bytes_read
    half = load_model(tmp_path, ranks=Parallel(1, 2)).report.bytes_read
    norms = 5 * 48 * 4
    assert half - norms == pytest.approx((whole - norms) / 2)


DELTA_NETS = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}


@for_each("family, given, size, expert_parallel, sentence", [
    ("qwen3_moe", {"moe_intermediate_size": 1}, 2, False, "an expert's first product, of which there are 1"),
    ("qwen2_moe", {"shared_expert_intermediate_size": 2}, 3, True, "shared experts' first product, .* there are 2"),
    ("qwen3", {"intermediate_size": 3, "num_attention_heads": 4}, 4, False, r"\(intermediate_size\), .* are 3"),
    ("qwen3_moe", {"num_experts": 3, "num_experts_per_tok": 1}, 4, True, "has only 3"),
    ("qwen3_5_text", DELTA_NETS, 4, False, r"2 key heads of delta nets, .* Use one of 1, 2\."),
    ("mxfp4", {"intermediate_size": 32}, 2, False, "blocks of 32 in an expert's inner layer, of which there are 1"),
])  # fmt: skip
def test_a_width_that_leaves_a_rank_without_anything_is_refused(
    tmp_path, family, given, size, expert_parallel, sentence
):
    write = {"mxfp4": mxfp4_model}.get(family, partial(tiny_model, family=family))
    write(tmp_path, **given)
    with pytest.raises(ConfigError, match=sentence):
        load_model(tmp_path, ranks=Parallel(size - 1, size), expert_parallel=expert_parallel)


# --- ranks on a CPU: here a thread is one -----------------------------------------------------------------------------


TURNS, WIDTH = 12, 7
# Their sum depends on the order in which they are added.
PARTS = [numpy.linspace(-1, 1, 21).reshape(3, WIDTH) * 10.0 ** (8 - 5 * rank) for rank in range(4)]


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
