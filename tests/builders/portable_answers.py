"""Digests of many models' answers in the arithmetic that all CPUs share: the same on every machine and every variant.

    python tests/builders/portable_answers.py --write         after a change that was meant to change bits
    python tests/builders/portable_answers.py FILE VARIANT    prints a variant's, of the checkpoints that the file names

The second form needs no torch, so an emulated processor's Python runs it.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.runner_harness import engine_of, prompt

from penstock.kernels.cpu import library as native
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.start.load import load_model

RECORDED = Path(__file__).with_name("portable_answers.json")  # by model
_BLOCKS = {"attn": "Q4_K", "ffn_gate": "Q5_K", "ffn_up": "Q8_0", "ffn_down": "Q6_K", "token_embd": "Q4_1"}
_WIDE = {"hidden_size": 256, "intermediate_size": 256}


class Case(NamedTuple):
    """A checkpoint, how it is loaded, and the format of its keys and values."""

    made: Callable[[Path], Path]
    loaded: dict[str, Any] = {}
    kv_kind: str = ""


def _tiny(family: str, **given: Any) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        from builders.tiny_model import tiny_model

        return tiny_model(folder, family, **given)

    return made


def _quantized(layout: str, **form: Any) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        from builders.quantized_model import Form, quantized_model

        return quantized_model(folder, Form(layout, **form))[0]

    return made


def _mxfp4(folder: Path) -> Path:
    from builders.quantized_model import mxfp4_model

    return mxfp4_model(folder, head_dim=32)


def _gguf(folder: Path) -> Path:
    from builders.gguf_models import as_gguf
    from builders.tiny_model import tiny_model

    def type_of(name: str) -> str:
        return next((type for part, type in _BLOCKS.items() if part in name), "F16")

    return as_gguf(tiny_model(folder / "checkpoint", "llama", **_WIDE), folder / "file", type_of)


MODELS = {
    "qwen3 in bfloat16": Case(_tiny("qwen3", dtype="bfloat16")),
    "mistral in float16 with a window": Case(_tiny("mistral", dtype="float16", sliding_window=24), kv_kind="int8"),
    "llama in int8": Case(_tiny("llama", dtype="bfloat16"), {"quantization": "int8"}, "int8"),
    "ernie in int4": Case(_tiny("ernie4_5"), {"quantization": "int4"}, "uint4"),
    "gptq": Case(_quantized("gptq", is_ordered=True), kv_kind="int8"),
    "awq": Case(_quantized("awq", is_symmetric=False), kv_kind="uint4"),
    "gguf": Case(_gguf, kv_kind="int8"),
    "gpt-oss in mxfp4": Case(_mxfp4, kv_kind="int8"),
    "mixtral in bfloat16": Case(_tiny("mixtral", dtype="bfloat16")),
    "qwen3.5 with states": Case(_tiny("qwen3_5_text", dtype="bfloat16")),
    "deepseek with latents": Case(_tiny("deepseek_v3", dtype="bfloat16")),
    "gemma 3": Case(_tiny("gemma3_text", dtype="bfloat16"), {"quantization": "int8"}),
}


def digest_of(name: str, checkpoint: Path) -> str:
    """Tokens, log-probabilities and ranks of requests of all kinds, to the last bit."""
    case = MODELS[name]
    model = load_model(checkpoint, options=BackendOptions(portable=True), **case.loaded)
    engine = engine_of(replace(model, kv_default=case.kv_kind) if case.kv_kind else model)
    answers = engine.run(
        prompt(0, [(7 * place) % 290 + 5 for place in range(60)], max_tokens=24, logprobs=3, prompt_logprobs=2),
        prompt(1, [11, 12, 13], seed=1, max_tokens=12, logprobs=3, temperature=1.0),
        prompt(2, range(20, 45), seed=2, max_tokens=12, logprobs=3, temperature=0.8, top_p=0.9),
        prompt(3, range(60, 83), seed=3, max_tokens=12, logprobs=3, temperature=1.2, top_k=20, presence_penalty=0.5),
    )
    assert all(answer.finish_reason == "length" for answer in answers), answers
    said = [(answer.tokens, answer.logprobs, answer.prompt_logprobs) for answer in answers]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def made_in(folder: Path) -> dict[str, str]:
    """The checkpoint of each model."""
    return {name: str(case.made(folder / str(number))) for number, (name, case) in enumerate(MODELS.items())}


def digests_of(checkpoints: dict[str, str]) -> str:
    found = {name: digest_of(name, Path(checkpoint)) for name, checkpoint in checkpoints.items()}
    return json.dumps(found, indent=1) + "\n"


def main(words: list[str]) -> None:
    if words == ["--write"]:
        with TemporaryDirectory() as folder:
            RECORDED.write_text(digests_of(made_in(Path(folder))))
        return
    # An emulated processor has the real one's /proc/cpuinfo.
    native.executable_variants = lambda: [words[1]]
    print(digests_of(json.loads(Path(words[0]).read_text())), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
