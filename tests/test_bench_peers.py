"""The benchmark against other engines: its scenarios, its processes, its converters, its figures and its shapes."""

import sys
from pathlib import Path

import pytest
from bench.engines.child import Child, EngineFault
from bench.engines.llama_cpp import common_beginning
from bench.engines.scenarios import MAX_NUM_SEQS, SCENARIOS, longest
from bench.formats.random_gguf import BLOCKS, FILES, active_bytes, type_of
from bench.formats.sight_gguf import encoder_name
from bench.peers.peers import BITS, own_active_bytes
from bench.shapes import PUBLISHED
from bench.shapes.shape import BESIDE_MXFP4, CONVOLUTION, DECAY, EMBEDDING, tensors, write_config
from builders.cases import for_each

from penstock.worker.description.config import read_config
from penstock.worker.description.products import products

FAKE_ENGINE = """
import os
from pathlib import Path
from bench.engines.serve import ServedEngine, serve

class Fake(ServedEngine):
    def prepare(self, checkpoint, folder, quantization): folder.mkdir()
    def load(self, folder, settings): return {"threads": settings.threads}
    def run(self, requests):
        print("an engine may print what it likes")
        if requests[0][1] == 13: raise ValueError("thirteen")
        if requests[0][1] == 14: os._exit(9)
        return [ids[:1] * count for ids, count in requests]
    def close(self): pass

serve(Fake())
"""


@pytest.fixture
def fake(tmp_path: Path):
    (tmp_path / "fake_engine.py").write_text(FAKE_ENGINE)
    child = Child("fake", sys.executable, "fake_engine", tmp_path / "fake.log")
    yield child
    child.close()


@for_each("name", SCENARIOS)
def test_a_scenario_is_the_same_for_every_engine_new_in_every_round_and_within_its_limits(name):
    scenario = SCENARIOS[name]
    waves = scenario.waves(0, 1000)
    assert waves == scenario.waves(0, 1000)
    again = scenario.waves(1, 1000)
    assert waves != again
    shapes = [[[(len(ids), count) for ids, count in wave] for wave in each] for each in (waves, again)]
    assert shapes[0] == shapes[1], "the same work in every round"
    assert max(map(len, waves)) <= MAX_NUM_SEQS
    assert max(len(ids) + count for wave in waves for ids, count in wave) < longest([scenario])
    rates = {"decode": 128, "prefill_512": 512, "batch_16": 1024, "prefix_16": 512}
    assert name not in rates or scenario.tokens(waves) == rates[name]


def test_an_engine_answers_and_its_printing_stays_out_of_the_way(fake: Child):
    settings = {"threads": 3, "max_model_len": 1, "max_num_seqs": 1, "kv_gib": 2}
    assert fake.ask("load", folder="x", quantization="int8", **settings)["threads"] == 3
    assert fake.ask("run", requests=[[[1, 2], 2], [[3], 3]])["tokens"] == [[1, 1], [3, 3, 3]]
    assert "may print" in fake.log.read_text()


def test_a_fault_is_told_with_the_engines_own_words_and_a_death_is_no_wait(fake: Child):
    with pytest.raises(EngineFault, match="(?s)ValueError: thirteen.*Traceback"):
        fake.ask("run", requests=[[[1], 13]])
    assert fake.ask("run", requests=[[[1], 2]])["tokens"] == [[1, 1]]
    for _ in range(2):
        with pytest.raises(EngineFault, match="ended with status 9"):
            fake.ask("run", requests=[[[1], 14]])


@for_each(
    "name, named",
    [
        ("patch_embed.proj.bias", "v.patch_embd.bias"),
        ("pos_embed.weight", "v.position_embd.weight"),
        ("blocks.3.attn.qkv.weight", "v.blk.3.attn_qkv.weight"),
        ("blocks.3.mlp.linear_fc2.bias", "v.blk.3.ffn_down.bias"),
        ("merger.linear_fc2.weight", "mm.2.weight"),
        ("deepstack_merger_list.1.norm.weight", "v.deepstack.11.norm.weight"),
    ],
)
def test_an_encoders_tensors_have_llama_cpps_names(name, named):
    assert encoder_name(name, [5, 11, 17]) == named


def test_only_a_beginning_that_all_prompts_share_is_copied():
    prefix = list(range(100))
    assert common_beginning([prefix + [1], prefix + [2, 3]]) == 100
    assert common_beginning([prefix, prefix]) == 99, "each computes its last token"
    assert common_beginning([prefix + [1], [7] + prefix]) == 0
    assert common_beginning([prefix]) == 0
    assert common_beginning([[1, 2, 3], [1, 2, 4]]) == 0, "too short to be worth it"


# --- shapes: the files that are made of them, and what a token reads --------------------------------------------------


def is_product(tensor) -> bool:
    is_router = "ffn_gate_inp" in tensor.name
    is_left_out = is_router or tensor.name.endswith(".bias") or tensor.part in (EMBEDDING, CONVOLUTION, DECAY)
    return len(tensor.shape) > 1 and not is_left_out


@for_each("name", PUBLISHED)
def test_the_matrices_of_a_shape_are_those_that_its_model_multiplies(name, tmp_path):
    model = PUBLISHED[name].cut(8)  # layers, of every kind
    write_config(tmp_path, model)
    multiplied = sum(product.num_weights for product in products(read_config(tmp_path)))
    assert sum(tensor.weights for tensor in tensors(model) if is_product(tensor)) == multiplied


@for_each("name", PUBLISHED)
@for_each("file", FILES)
def test_every_matrix_fills_the_blocks_of_its_type(name, file):
    for tensor in tensors(PUBLISHED[name]):
        kind = type_of(PUBLISHED[name], tensor, file)
        assert kind is None or tensor.shape[-1] % BLOCKS[kind].weights == 0, tensor


def test_a_token_reads_the_chosen_experts_and_a_row_of_the_embedding():
    model = PUBLISHED["qwen3-30b"]
    attention, experts, head = 2048 * 128 * (2 * 32 + 2 * 4), 8 * 3 * 768 * 2048, 151_936 * 2048
    weights = 8 * (attention + experts) + head
    floats = 4 * (8 * (128 * 2048 + 2 * 2048 + 2 * 128) + 2048)
    assert own_active_bytes(model, "int8") == weights + floats
    assert active_bytes(model, "Q8_0") == pytest.approx(weights * 34 / 32 + floats)


def test_experts_are_as_published_in_the_class_of_mxfp4_only(tmp_path):
    """Integers are made of the original in floats, for what is published in MXFP4 stays so."""
    model = PUBLISHED["gpt-oss-20b"].cut(2)
    for quantization in (*BITS, *BESIDE_MXFP4):
        write_config(tmp_path, model.in_class(quantization))
        read = read_config(tmp_path).quantization
        assert (read is not None and read.is_mxfp4) == (quantization in BESIDE_MXFP4)
    assert [name for name, each in PUBLISHED.items() if each.is_mxfp4] == ["gpt-oss-20b"]
