"""The benchmark against other engines: its scenarios, its processes, its converters and what it makes of figures."""

import json
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest
from bench_models import SHAPES
from builders.cases import for_each
from peers.checkpoint import tensor_shapes
from peers.child import Child, EngineFault
from peers.drawing import picture
from peers.gguf_file import gguf_name
from peers.llama_cpp import common_beginning
from peers.report import markdown, ratio
from peers.scenarios import DEFAULT, MAX_MODEL_LEN, MAX_NUM_SEQS, SCENARIOS
from peers.sitting import Contender, Plan, Sitting

FAKE_ENGINE = """
import os
from pathlib import Path
from peers.serve import ServedEngine, serve

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


def soon_stopped(child: Child) -> bool:
    """A stopped process shows as such once the kernel has come by it."""
    process, until = psutil.Process(child._popen.pid), time.monotonic() + 60
    while process.status() != psutil.STATUS_STOPPED and time.monotonic() < until:
        time.sleep(0.01)
    return process.status() == psutil.STATUS_STOPPED


def figures(**rates: list[float]) -> dict:
    return {
        name.replace("_", "."): {
            "rate": rate,
            "seconds": [1.0] * len(rate),
            "others": [0.0] * len(rate),
            "first_tokens": [[7, len(name)] for _ in rate],
        }
        for name, rate in rates.items()
    }


@pytest.fixture
def record() -> dict:
    engine = {"version": "1.0", "format": "int8", "starts": [1.5, 0.5], "memory": {"loaded": {"rss": 1, "pss": 1}}}
    decode = figures(penstock=[50.0, 60.0], llama_cpp=[40.0, 44.0])
    decode["penstock"] |= {"step_seconds": [0.02, 0.02], "read_gb_s": [40.0, 40.0]}
    mixed = figures(penstock=[100.0, 100.0], llama_cpp=[10.0])
    loaded = {"weight_bytes": 600_000_000, "kv_bytes_per_token": 0}
    return {
        "machine": {"processor": "Some CPU", "flags": ["avx2"], "cores": 2, "revision": "abc", "time": "today"},
        "limits": {
            "read_gb_s": {"median": 40.0, "best": 41.0}, "float32_gflop_s": 1.0, "int8_gop_s": 4.0,
            "bfloat16_gflop_s": None,
        },
        "threads": 2, "shape": "0.6b", "rounds": 2,
        "classes": {
            "int8": {
                "engines": {"penstock": engine | {"loaded": loaded}, "llama.cpp": engine | {"loaded": {}}},
                "scenarios": {"decode": decode, "mixed_32": mixed},
                "import_torch": [1.5],
                "faults": [{"engine": "vllm", "fault": "vllm ended with status 1.\nmore"}],
            }
        },
    }  # fmt: skip


@for_each("name", SCENARIOS)
def test_a_scenario_is_the_same_for_every_engine_and_new_in_every_round(name):
    scenario = SCENARIOS[name]
    waves = scenario.waves(0, 1000)
    assert waves == scenario.waves(0, 1000)
    again = scenario.waves(1, 1000)
    assert waves != again
    shapes = [[[(len(ids), count) for ids, count in wave] for wave in each] for each in (waves, again)]
    assert shapes[0] == shapes[1], "the same work in every round"


@for_each("name", SCENARIOS)
def test_every_scenario_fits_what_the_engines_are_told(name):
    for wave in SCENARIOS[name].waves(0, 1000):
        assert len(wave) <= MAX_NUM_SEQS
        assert max(len(ids) + count for ids, count in wave) <= MAX_MODEL_LEN


def test_prompt_rates_count_prompts_and_output_rates_count_outputs():
    rates = {name: SCENARIOS[name].tokens(SCENARIOS[name].waves(0, 1000)) for name in DEFAULT}
    assert (rates["decode"], rates["prefill_512"], rates["batch_16"], rates["prefix_16"]) == (128, 512, 1024, 512)


def test_an_engine_answers_and_its_printing_stays_out_of_the_way(fake: Child):
    assert fake.ask("load", folder="x", quantization="int8", threads=3, max_model_len=1, max_num_seqs=1)["threads"] == 3
    assert fake.ask("run", requests=[[[1, 2], 2], [[3], 3]])["tokens"] == [[1, 1], [3, 3, 3]]
    assert "may print" in fake.log.read_text()


def test_an_engine_that_is_not_asked_is_stopped(fake: Child):
    fake.ask("run", requests=[[[1], 1]])
    fake.pause()
    assert soon_stopped(fake)
    with fake.awake():
        assert fake.ask("run", requests=[[[1], 2]])["tokens"] == [[1, 1]]
    assert soon_stopped(fake)


def test_a_fault_is_told_with_the_engines_own_words_and_the_next_request_works(fake: Child):
    with pytest.raises(EngineFault, match="(?s)ValueError: thirteen.*Traceback"):
        fake.ask("run", requests=[[[1], 13]])
    assert fake.ask("run", requests=[[[1], 2]])["tokens"] == [[1, 1]]


def test_a_dead_engine_is_a_fault_and_not_a_wait(fake: Child):
    with pytest.raises(EngineFault, match="ended with status 9"):
        fake.ask("run", requests=[[[1], 14]])
    with pytest.raises(EngineFault):
        fake.ask("run", requests=[[[1], 1]])


def test_the_ratio_is_to_the_best_peer(record):
    scenarios = record["classes"]["int8"]["scenarios"]
    assert ratio(scenarios["decode"]) == pytest.approx(55 / 42)
    assert ratio(figures(penstock=[1.0])) is None
    assert ratio(figures(vllm=[1.0])) is None


def test_the_table_has_rates_ratios_starts_and_what_went_wrong(record):
    text = markdown(json.loads(json.dumps(record)))
    assert "| decode, batch 1 (32 in, 128 out) | 55.0 | 42.0 | **1.31** × llama.cpp |" in text
    assert "| 100.0 | 10.0¹ |" in text, "a peer measured once is marked"
    assert "1.50, 0.50" in text and "vllm ended with status 1." in text
    assert "20.00 ms and reads 0.600 GB: 30.0 GB/s, 75% of the 40.0 GB/s" in text
    assert "first tokens equal to Penstock's: llama.cpp 50% of 6" in text
    assert "bfloat16" not in text.splitlines()[1], "no unit, no figure"


def test_the_picture_is_well_formed_and_has_a_bar_for_each_rate(record):
    root = ElementTree.fromstring(picture(record))
    bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("height") != "100%"]
    assert len(bars) == 2 + 4, "two in the legend, two engines in two scenarios"


def test_a_slow_losing_peer_is_measured_once_and_the_best_one_in_every_round(tmp_path):
    sitting = Sitting(Plan(tmp_path, 1000, 2, 2, 1, patience=15.0), "int8")
    from peers import ENGINES

    llama, openvino, ours = (Contender(ENGINES[name], "", "") for name in ("llama.cpp", "openvino", "penstock"))
    taken = figures(penstock=[1.0], llama_cpp=[10.0], openvino=[100.0])
    for entry in taken.values():
        entry["seconds"] = [60.0]
    mixed = SCENARIOS["mixed_32"]
    assert [sitting._takes_part(one, mixed, taken) for one in (llama, openvino, ours)] == [False, True, True]
    taken["llama.cpp"]["seconds"] = [5.0]
    assert sitting._takes_part(llama, mixed, taken), "a quick one costs nothing"
    assert not sitting._takes_part(Contender(ENGINES["transformers"], "", ""), mixed, {})


@for_each(
    "name, theirs",
    [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.27.self_attn.q_norm.weight", "blk.27.attn_q_norm.weight"),
        ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
    ],
)
def test_tensors_get_the_names_that_llama_cpp_reads(name, theirs):
    assert gguf_name(name) == theirs


def test_every_tensor_of_the_checkpoint_has_a_name_there():
    config = {**SHAPES["small"]}
    assert len({gguf_name(name) for name, _ in tensor_shapes(config)}) == 2 + 11 * config["num_hidden_layers"]


def test_only_a_beginning_that_all_prompts_share_is_copied():
    prefix = list(range(100))
    assert common_beginning([prefix + [1], prefix + [2, 3]]) == 100
    assert common_beginning([prefix, prefix]) == 99, "each computes its last token"
    assert common_beginning([prefix + [1], [7] + prefix]) == 0
    assert common_beginning([prefix]) == 0
    assert common_beginning([[1, 2, 3], [1, 2, 4]]) == 0, "too short to be worth it"


def test_four_bit_values_lie_eight_an_int32_and_the_first_lowest():
    torch = pytest.importorskip("torch")
    from peers.quantized_checkpoint import w4a16

    weight = torch.randn(3, 256, generator=torch.Generator().manual_seed(0))
    packed = w4a16("x", weight)
    values = ((packed["x.weight_packed"].to(torch.int64).unsqueeze(2) >> torch.arange(0, 32, 4)) & 15).view(3, 256) - 8
    scale = packed["x.weight_scale"].float().repeat_interleave(128, dim=1)
    assert (values * scale - weight).abs().max() <= 0.55 * scale.max()
