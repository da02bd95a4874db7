"""Trees and answers for tests of a card, whose bodies run on a CPU as well: only the device's name differs.

`usable` skips where there is no card. Trees are small, and do not warm up: a card may be there for minutes only.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.cpu_answers import IS_REHEARSAL

from penstock import LLM, RequestOutput, SamplingParams
from penstock.frontend.console.logs import log_folder

SMALL = {
    "max_model_len": 512, "max_num_seqs": 32, "max_num_batched_tokens": 512, "kv_cache_memory": "256MiB",
    "block_size": 16, "use_warmup": False, "quiet": True,
}  # fmt: skip
TEXTS = (
    "What is 348 + 275?", "Count from 3 to 9.", "Hello there!",
    "Ada is 36 years old and lives in Paris. How old is Ada?", "What is the capital of France?",
)  # fmt: skip


def sized(full: Any, small: Any) -> Any:
    """What a card computes, or what Triton's interpreter computes in a rehearsal."""
    return small if IS_REHEARSAL else full


def usable(device: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device here")
    return device


def pocket(device: str, **options: Any) -> LLM:
    """The bundled model."""
    return LLM("pocket", device=device, **{**SMALL, **options})


def asked(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def mixed_prompts(count: int) -> list[str]:
    """Short ones and long ones, half of them with one beginning."""
    beginning = "Once there was a town by the sea, and in it lived a baker. " * 4
    return [
        asked((beginning if number % 2 else "") + f"{TEXTS[number % len(TEXTS)]} " * (1 + number % 4) + str(number))
        for number in range(min(count, sized(count, 3)))
    ]


def generated(llm: LLM, prompts: list[Any], params: SamplingParams | list[SamplingParams]) -> list[RequestOutput]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.error_msg for output in outputs] == [None] * len(outputs)
    return outputs


def told(output: RequestOutput) -> tuple:
    """All that depends on the request: equal answers are equal bit for bit."""
    answers = [
        (list(answer.token_ids), answer.text, answer.finish_reason, answer.logprobs, answer.cumulative_logprob)
        for answer in output.outputs
    ]
    return answers, output.prompt_logprobs


def last_log() -> str:
    """The log of the tree that started last."""
    newest = max(Path(log_folder()).glob("*.log"), key=lambda path: path.stat().st_mtime)
    return newest.read_text(encoding="utf-8")
