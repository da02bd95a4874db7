"""llama.cpp as an engine of the benchmark, through llama-cpp-python's low-level calls.

The high-level class runs one sequence at a time, so the batch is formed here: all prompts in batches of 2,048 tokens,
then one step after another for every sequence that isn't done, each with a KV stream of its own. A prefix that all
requests share is computed once and copied, as llama.cpp's own `batched-bench` does.
"""

import sys
from pathlib import Path
from typing import Any

from ..formats.quantize_gguf import quantize
from .serve import Request, ServedEngine, Settings, serve

FILE_TYPES = {"fp32": "F32", "none": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
MODEL_FILE = "model.gguf"
BATCH_TOKENS = 2048
CONTEXT_STEP = 256
SHARED_AT_LEAST = 64  # tokens that make a common beginning worth copying

Entry = tuple[int, int, int, bool]  # token, position, sequence, whether its logits are wanted


class LlamaCpp(ServedEngine):
    def __init__(self, load_mode: str = "NONE") -> None:
        """Load into memory of its own by default: mapped pages may be dropped while others run, and be read again."""
        self._load_mode = load_mode
        self._settings: Settings
        self._model: Any = None
        self._context: Any = None
        self._batch: Any = None
        self._shape = (0, 0)  # sequences, tokens a sequence

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        """Quantize the file of floats that `penstock convert` has made beside the checkpoint."""
        folder.mkdir()
        quantize(checkpoint.with_suffix(".gguf"), folder / MODEL_FILE, FILE_TYPES[quantization])

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        import llama_cpp

        self._settings = settings
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.load_mode = getattr(llama_cpp, f"LLAMA_LOAD_MODE_{self._load_mode}")
        self._model = llama_cpp.llama_model_load_from_file(str(folder / MODEL_FILE).encode(), options)
        if not self._model:
            raise RuntimeError(f"llama.cpp could not load {folder / MODEL_FILE}")
        self._num_vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        return {"system": llama_cpp.llama_print_system_info().decode()}

    def make_room(self, requests: list[Request]) -> None:
        longest = max(len(ids) + count for ids, count in requests)
        shape = (len(requests), -(-longest // CONTEXT_STEP) * CONTEXT_STEP)
        if shape != self._shape:
            self._make_context(len(requests), shape[0] * shape[1], is_common=False)
            self._shape = shape

    def make_common_room(self, sequences: int, tokens: int) -> None:
        """One cache for all, in which none has a part of its own."""
        self._make_context(sequences, tokens, is_common=True)

    def _make_context(self, sequences: int, tokens: int, is_common: bool) -> None:
        import llama_cpp

        self._free_context()
        options = self.context_options()
        options.n_seq_max, options.n_ctx, options.kv_unified = sequences, tokens, is_common
        options.n_batch = BATCH_TOKENS
        options.n_threads = options.n_threads_batch = self._settings.threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError(f"llama.cpp has no room for {sequences} sequences of {tokens} tokens together")

    def context_options(self) -> Any:
        import llama_cpp

        return llama_cpp.llama_context_default_params()

    def run(self, requests: list[Request]) -> list[list[int]]:
        import llama_cpp

        self.clear()
        memory = llama_cpp.llama_get_memory(self._context)
        shared = common_beginning([ids for ids, _ in requests])
        if shared:
            self.decode([(token, position, 0, False) for position, token in enumerate(requests[0][0][:shared])])
            for sequence in range(1, len(requests)):
                llama_cpp.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
        rest = [
            (token, position, sequence, position == len(ids) - 1)
            for sequence, (ids, _) in enumerate(requests)
            for position, token in enumerate(ids)
            if position >= shared
        ]
        answers = [[token] for _, token in sorted(self.decode(rest).items())]
        while unfinished := [number for number, (_, count) in enumerate(requests) if len(answers[number]) < count]:
            step = [
                (answers[number][-1], len(requests[number][0]) + len(answers[number]) - 1, number, True)
                for number in unfinished
            ]
            for number, token in self.decode(step).items():
                answers[number].append(token)
        return answers

    def clear(self) -> None:
        """Forget all sequences."""
        import llama_cpp

        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def forget(self, sequence: int, after: int = 0) -> None:
        """A sequence's tokens but its first."""
        import llama_cpp

        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), sequence, after, -1)

    def decode(self, entries: list[Entry]) -> dict[int, int]:
        """Compute the entries; the likeliest next token of each sequence whose logits were wanted."""
        import llama_cpp

        found: dict[int, int] = {}
        for start in range(0, len(entries), BATCH_TOKENS):
            part = entries[start : start + BATCH_TOKENS]
            self._fill(part)
            if status := llama_cpp.llama_decode(self._context, self._batch):
                raise RuntimeError(f"llama_decode failed with status {status} at {len(part)} tokens")
            for number, (_, _, sequence, wanted) in enumerate(part):
                if wanted:
                    found[sequence] = self.likeliest(number)
        return found

    def likeliest(self, number: int) -> int:
        """The token after one of the last batch; -1 is its last."""
        import llama_cpp
        import numpy

        logits = llama_cpp.llama_get_logits_ith(self._context, number)
        return int(numpy.ctypeslib.as_array(logits, (self._num_vocabulary,)).argmax())

    def _fill(self, entries: list[Entry]) -> None:
        batch = self._batch
        batch.n_tokens = len(entries)
        for number, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[number] = token
            batch.pos[number] = position
            batch.n_seq_id[number] = 1
            batch.seq_id[number][0] = sequence
            batch.logits[number] = wanted

    def _free_context(self) -> None:
        import llama_cpp

        if self._context:
            llama_cpp.llama_free(self._context)
        self._context, self._shape = None, (0, 0)

    def close(self) -> None:
        import llama_cpp

        self._free_context()
        if self._model:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_model_free(self._model)


def common_beginning(prompts: list[list[int]]) -> int:
    """Tokens that several prompts begin with alike, short of a whole prompt; 0 where copying them doesn't pay."""
    if len(prompts) < 2:
        return 0
    most = min(map(len, prompts)) - 1
    shared = next((n for n in range(most) if any(ids[n] != prompts[0][n] for ids in prompts)), most)
    return shared if shared >= SHARED_AT_LEAST else 0


if __name__ == "__main__":
    serve(LlamaCpp(*sys.argv[1:]))
