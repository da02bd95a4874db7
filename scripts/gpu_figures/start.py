"""From `LLM(folder)` to the first token: the first start, which compiles and tunes kernels, and the second.

The weights are a file that was just written, so they come from the page cache.
"""

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from bench.models import SHAPES, tensor_shapes, write_config

from penstock import LLM, SamplingParams

from .setting import Figure, Part, Setting

_BLOCK = 128 << 20  # bytes of random numbers, written again and again


def parts(setting: Setting) -> Iterator[Part]:
    folder = setting.folder / "stored"
    # Caches that nobody has filled: what earlier sections compiled and tuned is not there.
    os.environ["PENSTOCK_CACHE"] = str(setting.folder / "cache")
    os.environ["TRITON_CACHE_DIR"] = str(setting.folder / "triton-cache")
    yield Part("a checkpoint is written", partial(_written, setting, folder))
    for which in ("first", "second"):
        yield Part(f"start to first token, {which}", partial(_started, setting, folder, which))


def _started(setting: Setting, folder: Path, which: str) -> Iterator[Figure]:
    start = time.perf_counter()
    with LLM(folder, device=setting.device, max_model_len=setting.sized(4096, 256), quiet=True) as llm:
        ready = time.perf_counter() - start
        next(iter(llm.stream([11, 12, 13], SamplingParams(max_tokens=4, ignore_eos=True))))
        first_token = time.perf_counter() - start
    yield Figure(f"start to first token, {which}", first_token, "s", None, f"ready after {ready:.1f} s")


def _written(setting: Setting, folder: Path) -> Iterator[Figure]:
    shape = SHAPES[setting.sized("8b", "small")]
    folder.mkdir()
    write_config(folder, {**shape, "dtype": "bfloat16"})
    start = time.perf_counter()
    size = write_weights(folder / "model.safetensors", shape)
    yield Figure("a checkpoint is written", size / 1e9, "GB", None, f"in {time.perf_counter() - start:.1f} s")


def write_weights(path: Path, shape: dict[str, Any]) -> int:
    """Small random bfloat16 numbers under the names that Hugging Face's Qwen3 has; gives their bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    tensors = dict(tensor_shapes(shape))
    if not shape["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    for name, size in tensors.items():
        start, end = end, end + 2 * int(numpy.prod(size))
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    floats = numpy.random.default_rng(0).uniform(-0.035, 0.035, _BLOCK // 2).astype(numpy.float32)
    block = (floats.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, end, _BLOCK):
            file.write(block[: end - start])
    return end
