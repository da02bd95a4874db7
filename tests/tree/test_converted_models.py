"""A converted model, in GGUF too, answers as its original does when that is quantized while it loads."""

import fcntl
import shutil
import signal
import sys
import termios
import threading
from pathlib import Path
from typing import IO, Any

import pytest
from builders.bundled_model import FOLDER
from builders.cases import for_each
from builders.native_variants import needs_variant
from builders.tiny_model import tiny_model
from builders.watching import wait_until

from penstock import LLM, ConfigError, ModelNotFoundError, SamplingParams
from penstock.frontend.models import conversion
from penstock.frontend.models.conversion import convert_model
from penstock.frontend.session.private import PrivateSession
from penstock.protocol.conversion import Conversion
from penstock.protocol.processes.process import ChildProcess, start_process, wait_for_ends
from penstock.worker.convert.convert import convert

MIXED = {"*": "int4", "*.down_proj": None, "lm_head": "int8"}
OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "quiet": True}


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


@needs_variant
def test_a_model_that_was_converted_first_answers_with_the_same_bits_and_its_folder_stands_alone(original, tmp_path):
    """In kinds of every sort, which tests/worker has one by one; and though its tokenizer came from elsewhere."""
    without = shutil.copytree(original, tmp_path / "without", ignore=shutil.ignore_patterns("tokenizer*"))
    made = convert_model(str(without), tmp_path / "made", quantization=MIXED, tokenizer=original)
    assert made.path == tmp_path / "made" and 0 < made.after <= made.before
    names = {path.name for path in made.path.iterdir()}
    assert names >= {path.name for path in original.iterdir()} | {"penstock_conversion.json"}
    sessions = [PrivateSession(folder, OPTIONS) for folder in (made.path, original)]
    for session in sessions:
        session.read_tokenizer()
    messages = [{"role": "user", "content": "Hello"}]
    first, second = (session.tokenizer.apply_chat_template(messages, tokenize=False) for session in sessions)
    assert first == second
    assert sampled(made.path) == sampled(original, quantization=MIXED)


@for_each("options, sentence", [
    ({"quantization": "int3"}, "quantization='int3': must be one of"),
    ({"quantization": {"*.qkv": "int8"}}, "matches no layer"),
    ({"quantization": "int8", "per_rank": True}, "per_rank=True needs tensor_parallel_size=2"),
    ({"quantization": "int8", "tensor_parallel_size": 0}, "must be a whole number from 1 to 256"),
])  # fmt: skip
def test_what_cannot_be_made_raises_and_leaves_nothing(original, tmp_path, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        convert_model(original, tmp_path / "made", **options)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelNotFoundError):
        convert_model(tmp_path / "nothing", tmp_path / "made", quantization="int8")
    with pytest.raises(ConfigError, match="is not written over"):
        convert_model(original, tmp_path, quantization="int8")


def test_an_interrupt_ends_the_process_that_converts(original, tmp_path, monkeypatch):
    """It comes while this process waits for a word of the other one, which is stopped until it can't say any."""
    started: list[ChildProcess] = []

    def start_stopped(*arguments: Any, **options: Any) -> ChildProcess:
        started.append(start_process(*arguments, **options))
        started[0].send(signal.SIGSTOP)
        threading.Thread(target=interrupt).start()
        return started[0]

    def interrupt() -> None:
        wait_until(lambda: unread_bytes(started[0].popen.stdin) > 0, "it has been told what to convert")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def wait_for_the_end(workers: list[ChildProcess], seconds: float) -> bool:
        workers[0].send(signal.SIGCONT)
        return wait_for_ends(workers, 6 * seconds)

    monkeypatch.setattr(conversion, "start_process", start_stopped)
    monkeypatch.setattr(conversion, "wait_for_ends", wait_for_the_end)
    with pytest.raises(KeyboardInterrupt):
        convert_model(original, tmp_path / "made", quantization="int8")
    assert started[0].has_ended and not started[0].was_killed
    assert list(tmp_path.iterdir()) == []


def unread_bytes(pipe: IO[bytes]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


# --- the bundled model in one GGUF file: found, translated and read in place ------------------------------------------

QUESTIONS = ["What is 20 + 22?", "What is the capital of France?", "Say the word tree twice."]


def answers(llm: LLM) -> list[list[int]]:
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    found = llm.chat(chats, SamplingParams(temperature=0, max_tokens=24), use_tqdm=False)
    return [list(each.outputs.token_ids) for each in found]


def test_pocket_answers_from_a_gguf_file_what_it_answers_from_its_folder(tmp_path, monkeypatch, pocket_llm):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "pocket.gguf"
    convert(Conversion(str(FOLDER), str(FOLDER), str(file), None, is_gguf=True), lambda said: None)
    with LLM(file, max_model_len=512, kv_cache_memory="64MiB", quiet=True) as llm:
        assert answers(llm) == answers(pocket_llm)
