"""What `convert_model` and conversions to GGUF write answers as the original does, quantized while it loads."""

import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.bundled_model import FOLDER
from builders.native_variants import available_variants
from builders.tiny_model import tiny_model
from builders.watching import is_running, wait_until

from penstock import LLM, ConfigError, ModelNotFoundError, SamplingParams
from penstock.frontend.models.conversion import convert_model
from penstock.frontend.session.private import PrivateSession
from penstock.protocol.conversion import Conversion
from penstock.worker.convert.convert import convert

MIXED = {"*": "int4", "*.down_proj": None, "lm_head": "int8"}
OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "quiet": True}
quantizes = pytest.mark.skipif(
    not available_variants(), reason="without native kernels nothing quantizes while it loads"
)
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "model"
    return tiny_model(folder, "qwen3", dtype="bfloat16", intermediate_size=128, head_dim=32)


def sampled(model: Path, **options: object) -> list[tuple[object, object]]:
    params = SamplingParams(temperature=0.8, max_tokens=16, ignore_eos=True, logprobs=4, seed=3)
    prompts = [[number, 5, 7 * number] for number in range(1, 6)]
    with LLM(model, **OPTIONS, **options) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    return [(each.outputs.token_ids, each.outputs.logprobs) for each in outputs]


# In one process, tests/worker holds conversions of every kind to this; mixed kinds are all of them at once.
KINDS = [MIXED, *(pytest.param(kind, marks=LONG) for kind in ("int8", "int4", None))]


@quantizes
@pytest.mark.parametrize("quantization", KINDS, ids=str)
def test_a_model_that_was_converted_first_answers_with_the_same_bits_and_its_folder_stands_alone(
    original, tmp_path, quantization
):
    """Also where the tokenizer came from elsewhere."""
    without = shutil.copytree(original, tmp_path / "without", ignore=shutil.ignore_patterns("tokenizer*"))
    made = convert_model(str(without), tmp_path / "made", quantization=quantization, tokenizer=original)
    assert made.path == tmp_path / "made" and 0 < made.after <= made.before
    names = {path.name for path in made.path.iterdir()}
    assert names >= {path.name for path in original.iterdir()} | {"penstock_conversion.json"}
    sessions = [PrivateSession(folder, OPTIONS) for folder in (made.path, original)]
    for session in sessions:
        session.read_tokenizer()
    messages = [{"role": "user", "content": "Hello"}]
    assert sessions[0].render(messages) == sessions[1].render(messages)
    assert sampled(made.path) == sampled(original, quantization=quantization)


@quantizes
@LONG
def test_two_ranks_answer_with_the_bits_of_their_own_conversion(original, tmp_path):
    ranks = {"tensor_parallel_size": 2, "num_threads": 2}
    made = convert_model(original, tmp_path / "cut", quantization=MIXED, tensor_parallel_size=2, per_rank=True)
    assert sampled(made.path, **ranks) == sampled(original, quantization=MIXED, **ranks)


@pytest.mark.parametrize(
    "options, error, sentence",
    [
        ({"quantization": "int3"}, ConfigError, "quantization='int3': must be one of"),
        ({"quantization": {"*.qkv": "int8"}}, ConfigError, "matches no layer"),
        ({"quantization": "int8", "per_rank": True}, ConfigError, "per_rank=True needs tensor_parallel_size=2"),
        # Refused by the process that converts, as the one above.
        pytest.param({"quantization": "int4", "group_size": 48}, ConfigError, "group_size=48 is no size", marks=LONG),
        ({"quantization": "int8", "tensor_parallel_size": 0}, ConfigError, "must be a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_made_raises_and_leaves_nothing(original, tmp_path, options, error, sentence):
    with pytest.raises(error, match=sentence):
        convert_model(original, tmp_path / "made", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_there_and_a_folder_that_is_are_refused(original, tmp_path):
    with pytest.raises(ModelNotFoundError):
        convert_model(tmp_path / "nothing", tmp_path / "made", quantization="int8")
    with pytest.raises(ConfigError, match="is not written over"):
        convert_model(original, tmp_path, quantization="int8")


def test_an_interrupt_ends_the_process_that_converts(original, tmp_path):
    """It comes while this process waits for a word of the other one."""
    before = {child.pid for child in psutil.Process().children()}
    found: list[int] = []

    def interrupt() -> None:
        wait_until(lambda: {child.pid for child in psutil.Process().children()} - before, 60, "it has been started")
        found.extend({child.pid for child in psutil.Process().children()} - before)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        convert_model(original, tmp_path / "made", quantization="int8")
    thread.join()
    wait_until(lambda: not any(map(is_running, found)), 60, "it has ended")
    assert list(tmp_path.iterdir()) == []


# --- the bundled model in one GGUF file: found, translated and read in place ------------------------------------------

QUESTIONS = ["What is 20 + 22?", "What is the capital of France?", "Say the word tree twice."]


def answers(llm: LLM) -> list[list[int]]:
    """Token ids of greedy answers."""
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    found = llm.chat(chats, SamplingParams(temperature=0, max_tokens=24), use_tqdm=False)
    return [list(each.outputs.token_ids) for each in found]


def answers_of(model: str | Path, **options: Any) -> list[list[int]]:
    with LLM(model, max_model_len=512, kv_cache_memory="64MiB", quiet=True, **options) as llm:
        return answers(llm)


def gguf_file(kept: Path, quantization: str | None = None) -> Path:
    file = kept / f"pocket-{quantization}.gguf"
    convert(Conversion(str(FOLDER), str(FOLDER), str(file), quantization, is_gguf=True), lambda said: None)
    return file


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_pocket_answers_from_a_gguf_file_what_it_answers_from_its_folder(kept, pocket_llm):
    assert answers_of(gguf_file(kept)) == answers(pocket_llm)


@LONG  # a step of each kind of blocks in one process: tests/worker/test_gguf_*.py
def test_pocket_in_blocks_answers_what_it_answers_in_floats(kept):
    alone = answers_of(gguf_file(kept, "q8_0"))
    assert all(alone)
    assert alone[0] == answers_of("pocket")[0]


@LONG
def test_two_ranks_whose_heads_end_within_blocks_answer_as_one(kept):
    file = gguf_file(kept, "q4_k")
    assert answers_of(file, tensor_parallel_size=2)[0] == answers_of(file)[0]
