"""Splits over ranks: a rank holds its share and reads no more, and a split that can't work is refused."""

from functools import partial

import pytest
from builders.cases import for_each
from builders.mxfp4_model import mxfp4_model
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.description.groups import groups_of
from penstock.worker.kv.kv_cache import KVShape
from penstock.worker.layers.linear import local_kv_heads
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.group_memory import kv_shape
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


def test_more_ranks_than_key_heads_keep_one_head_each(tmp_path):
    tiny_model(tmp_path, "mistral")
    group = groups_of(read_config(tmp_path), 64)[0]
    assert {kv_shape(group, Parallel(rank, 5)) for rank in range(5)} == {KVShape(2, 1, 16)}


DELTA_NETS = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}


@for_each(
    "family, given, size, expert_parallel, sentence",
    [
        ("qwen3_moe", {"moe_intermediate_size": 1}, 2, False, "an expert's first product, of which there are 1"),
        ("qwen2_moe", {"shared_expert_intermediate_size": 2}, 3, True, "shared experts' first product, .* there are 2"),
        ("qwen3", {"intermediate_size": 3, "num_attention_heads": 4}, 4, False, r"\(intermediate_size\), .* are 3"),
        ("qwen3_moe", {"num_experts": 3, "num_experts_per_tok": 1}, 4, True, "has only 3"),
        ("qwen3_5_text", DELTA_NETS, 4, False, r"2 key heads of delta nets, .* Use one of 1, 2\."),
        ("mxfp4", {"intermediate_size": 32}, 2, False, "blocks of 32 in an expert's inner layer, of which there are 1"),
    ],
)
def test_a_width_that_leaves_a_rank_without_anything_is_refused(
    tmp_path, family, given, size, expert_parallel, sentence
):
    write = {"mxfp4": mxfp4_model}.get(family, partial(tiny_model, family=family))
    write(tmp_path, **given)
    with pytest.raises(ConfigError, match=sentence):
        load_model(tmp_path, ranks=Parallel(size - 1, size), expert_parallel=expert_parallel)
