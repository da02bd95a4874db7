"""Where a step's time goes, kernel by kernel, each beside what the machine would need for it at least.

    python scripts/bench_prefill.py                                   # int8 over bf16 keys and values, all steps below
    python scripts/bench_prefill.py --quantization int4 none --kv int8
    python scripts/bench_prefill.py --steps prompt-512 prompt-2048    # some of the steps

Steps of a random-weight Qwen3-0.6B shape in this process, without a tree: prompts of 128 to 8,192 tokens in chunks as
the engine cuts them, batches of answers, and both in one step. Kernels are called one after another, each by itself;
what the whole step takes beyond them is waiting. A limit is the products' operations at the units' peak, or the bytes
of weights, keys, values and rows at memory's speed, whichever takes longer, both read in the same minute.
"""

import argparse
import ctypes
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from bench_harness import machine, median
from bench_models import SHAPES, write_config
from machine_limits import limits

from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.program import Program
from penstock.worker.kv.host_memory import BackgroundTouch
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.block_tables import BlockRows

BLOCK_SIZE = 32
CHUNK = 512  # tokens of a step, as by default
MODEL = SHAPES["0.6b"]
# A row's tokens in the step, and its context with them.
Rows = list[tuple[int, int]]
# The units that multiply a format of weights, or of keys and values, and its bytes a number.
UNITS = {"none": "bfloat16_gflop_s", "int8": "int8_gop_s", "int4": "int8_gop_s", "bf16": "bfloat16_gflop_s"}
NUM_BYTES = {"none": 2.0, "int8": 1.0, "int4": 0.53, "bf16": 2.0}
KINDS = {
    "linear": "products", "gated_linear": "products",
    "attention": "attention", "plan_attention": "attention", "store_heads": "store heads",
    "gate": "activation", "apply_activation": "activation", "add_rms_norm": "norms", "rms_norm": "norms",
}  # fmt: skip


def prompt(tokens: int) -> list[Rows]:
    """The steps of one prompt."""
    ends = range(min(CHUNK, tokens), tokens + 1, CHUNK)
    return [[(min(CHUNK, end), end)] for end in ends]


STEPS: dict[str, list[Rows]] = {
    **{f"prompt-{tokens}": prompt(tokens) for tokens in (128, 512, 2048, 8192)},
    "answers-1": [[(1, 512)]],
    "answers-16": [[(1, 160)] * 16],
    "answers-64": [[(1, 512)] * 64],
    "mixed": [[(1, 512)] * 8 + [(CHUNK - 8, 1024)]],
}


@dataclass
class Bench:
    """A model with memory for keys and values, and what kernels of it can do at most."""

    model: Model
    memory: ModelMemory
    library: Library
    quantization: str
    kv_kind: str
    peaks: dict[str, float]  # operations, and bytes, a second

    def batch(self, rows: Rows) -> Batch:
        widest = max(-(-context // BLOCK_SIZE) for _, context in rows)
        blocks = self.memory.groups[0].num_blocks
        tables = torch.stack([(torch.arange(widest) + 37 * row) % blocks for row in range(len(rows))]).to(torch.int32)
        positions = torch.cat([torch.arange(context - tokens, context) for tokens, context in rows])
        of_row = torch.cat([torch.full((tokens,), row) for row, (tokens, _) in enumerate(rows)])
        slots = tables[of_row, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
        starts = torch.tensor([0, *(tokens for tokens, _ in rows)]).cumsum(0)
        return Batch(
            token_ids=torch.randint(0, self.model.vocab_size, (len(positions),)),
            positions=positions,
            query_starts=starts.tolist(),
            context_lengths=[context for _, context in rows],
            groups=[BlockRows(tables, slots)],
            logit_rows=starts[1:] - 1,
            memory=self.memory,
        )

    def whole(self, rows: Rows) -> float:
        """Seconds of the step as the worker runs it."""
        batch = self.batch(rows)
        start = time.perf_counter()
        self.model.forward_pass.logits(self.model.forward_pass.forward(batch), batch.logit_rows)
        return time.perf_counter() - start

    def by_kind(self, rows: Rows) -> Counter[str]:
        """Seconds of each kind of kernel; the step before this must have been the same."""
        layers, head = self.model.forward_pass.records(self.memory)
        seconds: Counter[str] = Counter()
        for part, program in (("layers", layers.program), ("head", head.program)):
            for kernel, taken in self._called(program):
                name = kernel.removeprefix("penstock_")
                kind = next((kind for kind in ("linear", "gated_linear") if name.startswith(kind)), name)
                seconds["head" if part == "head" and kind == "linear" else KINDS.get(kind, "others")] += taken
        return seconds

    def _called(self, program: Program) -> Iterator[tuple[str, float]]:
        for kernel, arguments in program.calls:
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.library.address(kernel))
            start = time.perf_counter()
            function(arguments)
            yield kernel, time.perf_counter() - start

    def limits(self, rows: Rows) -> dict[str, float]:
        """Seconds that each kind needs at least."""
        hidden, inner, layers = MODEL["hidden_size"], MODEL["intermediate_size"], MODEL["num_hidden_layers"]
        heads, kv_heads, size = MODEL["num_attention_heads"], MODEL["num_key_value_heads"], MODEL["head_dim"]
        tokens = sum(count for count, _ in rows)
        weights = layers * hidden * ((2 * heads + 2 * kv_heads) * size + 3 * inner)
        head = hidden * MODEL["vocab_size"]
        looks = sum(count * context - count * (count - 1) / 2 for count, context in rows)  # queries × keys they see
        contexts = sum(context for _, context in rows)
        product, stored = UNITS[self.quantization], NUM_BYTES[self.quantization]
        kv_bytes = contexts * 2 * kv_heads * size * layers * NUM_BYTES[self.kv_kind]
        row_bytes = 4 * tokens * layers
        return {
            "products": self._least(product, 2 * weights * tokens, weights * stored),
            "head": self._least(product, 2 * head * len(rows), head * stored),
            "attention": self._least(UNITS[self.kv_kind], 4 * looks * heads * size * layers, kv_bytes),
            "store heads": self._least(product, 0, row_bytes * (heads + 2 * kv_heads) * size * 2),
            "activation": self._least(product, 0, row_bytes * inner * 3),
            "norms": self._least(product, 0, row_bytes * hidden * 2 * 4),
        }

    def _least(self, unit: str, operations: float, num_bytes: float) -> float:
        return max(operations / (self.peaks[unit] * 1e9), num_bytes / (self.peaks["read"] * 1e9))


def opened(quantization: str, kv_kind: str, threads: int, peaks: dict[str, float]) -> Bench:
    form = None if quantization == "none" else quantization
    with TemporaryDirectory() as folder:
        write_config(Path(folder), {**MODEL, "dtype": "bfloat16", "max_position_embeddings": 8192})
        model = load_model(Path(folder), load_format="dummy", quantization=form, num_threads=threads)
    memory = model.plain_memory(16_384 // BLOCK_SIZE, BLOCK_SIZE, kv_kind)
    touch = BackgroundTouch(memory.tensors, lambda left: None)  # on huge pages, as in a tree that has started
    touch.start()
    touch.wait()
    for tensor in memory.tensors:
        tensor.view(torch.uint8).random_(56, 62)  # neither NaN nor denormal numbers in any format
    return Bench(model, memory, load(), quantization, kv_kind, peaks)


def table(bench: Bench, name: str, rounds: int) -> Iterator[str]:
    """One line a kind: its milliseconds, its limit's, and the share that it reaches."""
    wholes: list[float] = []
    kinds: dict[str, list[float]] = {}
    least: Counter[str] = Counter()
    for rows in STEPS[name]:
        least.update(bench.limits(rows))
    for _ in range(rounds):
        seconds: Counter[str] = Counter()
        whole = 0.0
        for rows in STEPS[name]:
            bench.whole(rows)  # records, and warms up
            whole += bench.whole(rows)
            seconds.update(bench.by_kind(rows))
        wholes.append(whole)
        for kind, taken in seconds.items():
            kinds.setdefault(kind, []).append(taken)
    whole, medians = median(wholes), {kind: median(taken) for kind, taken in kinds.items()}
    tokens = sum(count for rows in STEPS[name] for count, _ in rows)
    limit = sum(least[kind] for kind in medians)  # without what other kernels do on their way, as activations
    found = f"{whole * 1e3:.1f} ms, {tokens / whole:,.0f} tokens a second"
    yield f"\n{name}: {found}, {limit / whole:.0%} of the limit ({tokens / limit:,.0f})\n"
    yield "| kernels | ms | limit | share of it | share of the step |"
    yield "| --- | --- | --- | --- | --- |"
    for kind, taken in sorted(medians.items(), key=lambda each: -each[1]):
        share = f"{least[kind] / taken:.0%}" if least[kind] else ""
        yield f"| {kind} | {taken * 1e3:.1f} | {least[kind] * 1e3:.1f} | {share} | {taken / whole:.0%} |"
    waiting = whole - sum(medians.values())
    yield f"| waiting, or less beside one another | {waiting * 1e3:.1f} | | | {waiting / whole:.0%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quantization", nargs="+", default=["int8"], choices=["int8", "int4", "none"])
    parser.add_argument("--kv", default="bf16", choices=["bf16", "int8"])
    parser.add_argument("--steps", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for quantization in arguments.quantization:
        found = limits(arguments.threads)
        peaks = {**{unit: found[unit] or found["float32_gflop_s"] for unit in set(UNITS.values())}}
        peaks["read"] = found["read_gb_s"]["median"]
        bench = opened(quantization, arguments.kv, arguments.threads, peaks)
        formats = f"weights {quantization}, keys and values {arguments.kv}"
        print(f"\n## {bench.library.variant}, {formats}; {json.dumps(peaks)}")
        for name in arguments.steps:
            print("\n".join(table(bench, name, arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
