"""Two ranks over gloo compute what one computes; a split that can't work is refused."""

from pathlib import Path

import pytest
from builders.cases import for_each
from builders.compared_models import PROMPTS, found_by_ranks
from builders.hand_driven import HandDriven
from builders.mxfp4_model import mxfp4_model
from builders.tiny_model import tiny_model
from builders.tiny_tensors import MIXTURE as GEMMA4_MIXTURE

from penstock.protocol.errors import ConfigError
from penstock.worker.kv.group_shapes import kv_shape
from penstock.worker.kv.kv_cache import KVShape
from penstock.worker.layers.linear import local_kv_heads
from penstock.worker.models.config import read_config
from penstock.worker.models.groups import groups_of
from penstock.worker.models.load import load_model
from penstock.worker.parallel import Parallel

# One process is one rank, for all folders in turn; it prints each row's tokens and the sum of its logits' squares.
RANK = """
import json, sys
from pathlib import Path

import torch
from builders.hand_driven import HandDriven
from penstock.worker.models.load import load_model
from penstock.worker.parallel import Parallel

rank, size, rendezvous, prompts, models = json.loads(sys.argv[1])
torch.set_num_threads(1)
ranks = Parallel.join(rank, size, Path(rendezvous), torch.device("cpu"))
found = []
for folder, loaded in models:
    driven = HandDriven(load_model(Path(folder), ranks=ranks, **loaded))
    rows = [driven.add(prompt) for prompt in prompts]
    logits = driven.greedy(rows, 8, budget=32)
    found.append([driven.histories, [row.square().sum().item() for row in logits]])
ranks.leave()
print(json.dumps(found))
"""


BY_EXPERT = {"expert_parallel": True}
SEVEN = {"num_experts": 7, "num_experts_per_tok": 7}
# The family, what its checkpoint has otherwise, and how the ranks load it.
SPLITS = {
    2: [
        ("qwen3", {}, {}),
        ("llama", {"attention_bias": True, "mlp_bias": True}, {}),
        ("ernie4_5", {"num_attention_heads": 6, "num_key_value_heads": 1}, {}),
        ("youtu", {"attention_bias": True}, {}),
        ("deepseek_v3", {}, {}),
        ("qwen2", {"num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 224}, {}),
        ("olmo2", {"num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 64, "attention_bias": True}, {}),
        ("granite", {"mlp_bias": True}, {}),
        ("glm4", {"attention_bias": True}, {}),
        ("gemma2", {}, {}),
        ("cohere", {"use_qk_norm": True, "attention_bias": True}, {}),
        ("stablelm", {"qk_layernorm": True, "num_key_value_heads": 1}, {}),
        ("nemotron", {"mlp_bias": True, "intermediate_size": 91}, {}),
        ("gemma4_text", GEMMA4_MIXTURE, {}),
        ("gemma4_text", GEMMA4_MIXTURE | {"num_experts": 5}, BY_EXPERT),
        ("gpt_oss", {"intermediate_size": 39}, {}),
        ("gpt_oss", {"num_local_experts": 5}, BY_EXPERT),
        ("mxfp4", {"dtype": "float32", "intermediate_size": 96}, {}),
        ("mxfp4", {"dtype": "float32", "num_local_experts": 5}, BY_EXPERT),
        ("qwen2_moe", {}, {}),
        ("qwen2_moe", {}, BY_EXPERT),
        ("qwen3_moe", SEVEN, {}),
        ("qwen3_moe", SEVEN, BY_EXPERT),
        ("qwen3_moe", {"num_experts": 1, "num_experts_per_tok": 1}, {}),
        ("qwen3_5_text", {"attention_bias": True, "num_key_value_heads": 1}, {}),
        ("qwen3_next", {}, {}),
        ("qwen3_next", {}, BY_EXPERT),
        ("lfm2", {"conv_bias": True}, {}),
    ],
    3: [
        ("qwen3_5_moe_text", {"num_attention_heads": 6}, {}),
        ("llama", {"num_key_value_heads": 3}, {}),
        ("mistral", {"num_attention_heads": 9}, {}),
    ],
}


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_several_ranks_answer_as_one(tmp_path, size):
    models = [
        (str(_model(tmp_path / str(number), family, given)), loaded)
        for number, (family, given, loaded) in enumerate(SPLITS[size])
    ]
    expected = []
    for folder, _ in models:
        driven = HandDriven(load_model(Path(folder)))
        logits = driven.greedy([driven.add(prompt) for prompt in PROMPTS], 8, budget=32)
        expected.append((driven.histories, [row.square().sum().item() for row in logits]))
    arguments = [[rank, size, str(tmp_path / "meet"), PROMPTS, models] for rank in range(size)]
    for found in found_by_ranks(RANK, arguments):
        for (histories, sums), (right, right_sums) in zip(found, expected, strict=True):
            assert histories == right
            assert sums == pytest.approx(right_sums, rel=1e-4)


def _model(folder, family, given):
    return mxfp4_model(folder, **given) if family == "mxfp4" else tiny_model(folder, family, **given)


@for_each("size", [0, 3, 4, 5, 12])
def test_a_size_that_cannot_share_the_heads_is_refused_with_those_that_can(tmp_path, size):
    tiny_model(tmp_path, "llama")  # 6 heads over 2
    with pytest.raises(ConfigError, match=rf"tensor_parallel_size={size} .* Use one of 1, 2, 6\."):
        load_model(tmp_path, ranks=Parallel(0, size))


def test_ranks_that_cannot_share_the_key_heads_of_delta_nets_are_refused(tmp_path):
    tiny_model(tmp_path, "qwen3_5_text", linear_num_key_heads=2, linear_num_value_heads=4)
    with pytest.raises(ConfigError, match=r"2 key heads of delta nets, .* Use one of 1, 2\."):
        load_model(tmp_path, ranks=Parallel(0, 4))


@for_each("size, heads", [(1, 3), (2, 4), (4, 2), (6, 3)])
def test_every_key_head_is_held_and_ranks_beyond_their_number_share_one(size, heads):
    held = [range(*local_kv_heads(rank, size, heads)) for rank in range(size)]
    assert sorted({head for own in held for head in own}) == list(range(heads))
    assert {len(own) for own in held} == {max(1, heads // size)}


def test_shares_cover_everything_once_and_differ_by_one_at_most():
    for total in (7, 8, 307):
        spans = [Parallel(rank, 3).span(total) for rank in range(3)]
        assert [spans[0][0], spans[1][0], spans[2][0], spans[2][1]] == [0, spans[0][1], spans[1][1], total]
        assert max(last - first for first, last in spans) - min(last - first for first, last in spans) <= 1


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


@for_each(
    "family, given, size, expert_parallel, sentence",
    [
        ("qwen3_moe", {"moe_intermediate_size": 1}, 2, False, "an expert's first product, of which there are 1"),
        ("qwen2_moe", {"shared_expert_intermediate_size": 2}, 3, True, "shared experts' first product, .* there are 2"),
        ("qwen3", {"intermediate_size": 3, "num_attention_heads": 4}, 4, False, r"\(intermediate_size\), .* are 3"),
        ("qwen3_moe", {"num_experts": 3, "num_experts_per_tok": 1}, 4, True, "has only 3"),
        ("mxfp4", {"intermediate_size": 32}, 2, False, "blocks of 32 in an expert's inner layer, of which there are 1"),
    ],
)
def test_a_width_that_leaves_a_rank_without_anything_is_refused(
    tmp_path, family, given, size, expert_parallel, sentence
):
    _model(tmp_path, family, given)
    with pytest.raises(ConfigError, match=sentence):
        load_model(tmp_path, ranks=Parallel(size - 1, size), expert_parallel=expert_parallel)
