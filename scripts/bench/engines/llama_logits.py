"""Computes a GGUF file by llama.cpp: logits after every token of texts, and the likeliest answers to prompts.

    {"texts": [[ids], …], "prompts": [[ids], …], "count": 64, "floats": false}   in, the path of a JSON file
    text-N [tokens, vocabulary], path-N [count], steps-N [count, vocabulary]       out, an .npz file

It runs in the Python in which llama-cpp-python is installed:
`python -m bench.engines.llama_logits FILE.gguf IN.json OUT.npz`.
With floats it keeps keys and values in float32 and attends without the shortcut that rounds them.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy

from .llama_cpp import MODEL_FILE, LlamaCpp
from .serve import Settings


class WithLogits(LlamaCpp):
    """Keeps the logits of which it gives the likeliest token."""

    def __init__(self, is_float: bool) -> None:
        super().__init__()
        self._is_float = is_float
        self.kept: list[Any] = []

    def context_options(self) -> Any:
        import llama_cpp

        options = super().context_options()
        if self._is_float:
            options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
            options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        return options

    def likeliest(self, number: int) -> int:
        import llama_cpp

        logits = llama_cpp.llama_get_logits_ith(self._context, number)
        self.kept.append(numpy.ctypeslib.as_array(logits, (self._num_vocabulary,)).copy())
        return int(self.kept[-1].argmax())

    def take(self) -> Any:
        kept, self.kept = numpy.stack(self.kept), []
        return kept


def main(model: Path, asked: Path, out: Path) -> None:
    wanted = json.loads(asked.read_text())
    engine = WithLogits(wanted["floats"])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MODEL_FILE).symlink_to(model.resolve())
        engine.load(Path(folder), Settings("", 1, 4096, 1))
    found = {}
    for number, text in enumerate(wanted["texts"]):
        engine.make_room([(text, 1)])
        engine.clear()
        engine.decode([(token, position, 0, True) for position, token in enumerate(text)])
        found[f"text-{number}"] = engine.take()
    for number, prompt in enumerate(wanted["prompts"]):
        engine.make_room([(prompt, wanted["count"])])
        [path] = engine.run([(prompt, wanted["count"])])
        found |= {f"path-{number}": numpy.array(path), f"steps-{number}": engine.take()}
    engine.close()
    numpy.savez(out, **found)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
