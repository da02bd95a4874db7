"""`convert_model` from Python: what it writes answers with the bits of the original, quantized while it loads."""

import shutil
import signal
import threading
from pathlib import Path

import psutil
import pytest
from builders.daemon import wait_for
from builders.native_variants import available_variants
from builders.tiny_model import tiny_model
from builders.watching import is_running, wait_until

from penstock import LLM, ConfigError, ModelNotFoundError, SamplingParams
from penstock.frontend.models.conversion import convert_model

MIXED = {"*": "int4", "*.down_proj": None, "lm_head": "int8"}
OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "quiet": True}
pytestmark = pytest.mark.skipif(
    not available_variants(), reason="without native kernels nothing quantizes while it loads"
)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "model"
    return tiny_model(folder, "qwen3", dtype="bfloat16", intermediate_size=128, head_dim=32)


def answers(model: Path, **options: object) -> list[tuple[object, object]]:
    params = SamplingParams(temperature=0.8, max_tokens=16, ignore_eos=True, logprobs=4, seed=3)
    prompts = [[number, 5, 7 * number] for number in range(1, 6)]
    with LLM(model, **OPTIONS, **options) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    return [(each.outputs.token_ids, each.outputs.logprobs) for each in outputs]


# In one process, tests/worker holds conversions of every kind to this; mixed kinds are all of them at once.
KINDS = [MIXED, *(pytest.param(kind, marks=pytest.mark.long) for kind in ("int8", "int4", None))]


@pytest.mark.parametrize("quantization", KINDS, ids=str)
def test_a_model_that_was_converted_first_answers_with_the_same_bits(original, tmp_path, quantization):
    made = convert_model(str(original), tmp_path / "made", quantization=quantization)
    assert made.path == tmp_path / "made" and 0 < made.after <= made.before
    assert answers(made.path) == answers(original, quantization=quantization)


@pytest.mark.long
def test_two_ranks_answer_with_the_bits_of_their_own_conversion(original, tmp_path):
    ranks = {"tensor_parallel_size": 2, "num_threads": 2}
    made = convert_model(original, tmp_path / "cut", quantization=MIXED, tensor_parallel_size=2, per_rank=True)
    assert answers(made.path, **ranks) == answers(original, quantization=MIXED, **ranks)


def test_the_folder_stands_alone_also_where_the_tokenizer_came_from_elsewhere(original, tmp_path):
    without = shutil.copytree(original, tmp_path / "without", ignore=shutil.ignore_patterns("tokenizer*"))
    made = convert_model(without, tmp_path / "made", quantization="int8", tokenizer=original)
    names = {path.name for path in made.path.iterdir()}
    assert names >= {path.name for path in original.iterdir()} | {"penstock_conversion.json"}
    options = {**OPTIONS, "load_format": "stand-in"}
    with LLM(made.path, **options) as llm, LLM(original, **options) as other:
        messages = [{"role": "user", "content": "Hello"}]
        assert llm.apply_chat_template(messages) == other.apply_chat_template(messages)


@pytest.mark.parametrize(
    "options, error, sentence",
    [
        ({"quantization": "int3"}, ConfigError, "quantization='int3': must be one of"),
        ({"quantization": {"*.qkv": "int8"}}, ConfigError, "matches no layer"),
        ({"quantization": "int8", "per_rank": True}, ConfigError, "per_rank=True needs tensor_parallel_size=2"),
        # Refused by the process that converts, as the one above.
        pytest.param(
            {"quantization": "int4", "group_size": 48}, ConfigError, "group_size=48 is no size", marks=pytest.mark.long
        ),
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
    wait_for(lambda: not any(map(is_running, found)), "it has ended")
    assert list(tmp_path.iterdir()) == []
