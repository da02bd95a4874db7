"""No process of a tree on native kernels has torch, whatever it computes: neither among its modules nor mapped."""

import os
from pathlib import Path
from typing import Any

import pytest
from builders.native_variants import needs_variant
from builders.seeing_model import about, as_url, picture
from builders.starts import command, run
from builders.watching import tree_processes

from penstock import LLM, BeamSearchParams, SamplingParams

pytestmark = needs_variant
OPTIONS: dict[str, Any] = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 1, "quiet": True}
PARAMS = [
    SamplingParams(max_tokens=6, temperature=0, ignore_eos=True),
    SamplingParams(max_tokens=6, seed=1, top_p=0.8, repetition_penalty=1.3, logprobs=3, prompt_logprobs=1),
    SamplingParams(max_tokens=6, seed=2, top_k=5, frequency_penalty=0.5, logit_bias={7: 2.0}),
]
PROMPTS = [[5, 6, 7], [*range(5, 90)], [9, 9]]
# What a script finds in its own process while its tree is open, and whether it would find one of torch's libraries.
OF_A_SCRIPT = f"""
import ctypes, importlib.util, sys
from pathlib import Path
from penstock import LLM
def has_torch():
    return "torch" in sys.modules or "/torch/lib/" in open("/proc/self/maps").read()
with LLM("pocket", **{OPTIONS!r}) as llm:
    llm.chat([{{"role": "user", "content": "What is 2 + 3?"}}])
    print(has_torch())
ctypes.CDLL(str(Path(importlib.util.find_spec("torch").origin).parent / "lib" / "libc10.so"))
print(has_torch())
"""


def assert_without(llm: LLM) -> None:
    """No process has mapped a library of torch's."""
    maps = {role: Path(f"/proc/{pid}/maps").read_text() for role, pid in tree_processes(llm).items()}
    assert [role for role, mapped in maps.items() if "/torch/lib/" in mapped] == []


def answers(llm: LLM, prompts: list[Any] = PROMPTS) -> None:
    outputs = llm.generate(prompts, PARAMS[: len(prompts)], use_tqdm=False)
    assert [output.error_msg for output in outputs] == [None] * len(prompts)


def test_a_script_has_none_and_the_look_would_find_it():
    found = run(OF_A_SCRIPT)
    assert found.stdout.split() == ["False", "True"], found.stderr


def test_rules_grammars_beams_and_two_ranks_with_adapters_need_none(llm, split, adapters):
    answers(llm)
    [guided] = llm.generate(["A word: "], SamplingParams(max_tokens=9, guided_regex="[ab]{4}"), use_tqdm=False)
    assert len(guided.outputs.text) == 4
    assert llm.beam_search([[5, 6, 7]], BeamSearchParams(beam_width=3, max_tokens=4), use_tqdm=False)
    split.load_lora("first", str(adapters["first"]))
    answers(split, [{"prompt_token_ids": ids, "lora_name": "first"} for ids in PROMPTS])
    split.unload_lora("first")
    assert_without(llm), assert_without(split)


def test_pictures_need_none():
    with LLM("pocket-sight", **OPTIONS) as llm:
        [output] = llm.chat(about({"type": "image_url", "image_url": {"url": as_url(picture())}}), PARAMS[0])
        assert output.error_msg is None
        assert_without(llm)


PER_RANK = ["--group-size", "32", "--tensor-parallel-size", "2", "--per-rank"]


@pytest.mark.parametrize("kind, target, words", [
    ("int8", "folder", []), ("q4_k", "file.gguf", []), pytest.param("int4", "folder", PER_RANK, marks=pytest.mark.long)
])  # fmt: skip
def test_a_conversion_needs_none_in_any_process(tmp_path, kind, target, words):
    """Put a module that leaves a file where it is imported in the place of torch."""
    (shadow := tmp_path / "shadow").mkdir()
    (shadow / "torch.py").write_text("import pathlib\npathlib.Path(__file__, '../found').resolve().touch()\n")
    environment = {"env": {**os.environ, "PYTHONPATH": str(shadow)}}
    asked = ["pocket", str(tmp_path / target), "--quantization", kind]
    done = command("convert", *asked, "--quiet", *words, **environment)
    assert done.returncode == 0 and (tmp_path / target).exists(), done.stderr
    assert not (shadow / "found").exists()
    run("import torch", **environment)
    assert (shadow / "found").exists(), "the look would not have found it"
