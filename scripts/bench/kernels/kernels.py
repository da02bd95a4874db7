"""Where a step's time goes, kernel by kernel, each next to what the machine would need for it at least.

    scripts/benchmark kernels --steps prompt-2048 answers-16
    scripts/benchmark kernels --steps 16x1@1024 16x1@1024+768 --kv bf16 int8
    scripts/benchmark kernels --shape qwen3-30b --layers 2 --steps 1x1@64 16x1@64    # experts
    scripts/benchmark kernels --shape qwen3.5-4b --layers 4 --steps 1x1@64           # states

Steps of a model with random weights in this process: prompts in chunks as the engine cuts them, batches of answers,
both in one step, or others by name: 16x1@1024+768 are 16 rows of 1 token whose contexts have 1,024 tokens, 768 of them
in common. Kernels are called one after another, each by itself; what the whole step takes beyond them is waiting. A
limit is the operations at the units' peak, or the bytes of weights, keys, values, states and rows at memory's speed,
whichever takes longer, both read in the same minute.
"""

import ctypes
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.kernels.cpu.kv_memory import KV_FORMATS
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.program import Program
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.start.model import Model

from ..batches import Rows, batch_of, dummy_model, filled_memory, step_seconds
from ..harness import Quantization, median, seconds_of
from ..machine import limits
from ..shapes import EVERY
from ..shapes.shape import CONVOLUTION, HEAD, Shape, Tensor, tensors, write_config

CHUNK = 512  # tokens of a step, as by default
POOL_TOKENS = 16_384
# The units that multiply a format of weights, or of keys and values, and bytes of a weight.
UNITS = {
    "none": "bfloat16_gflop_s", "int8": "int8_gop_s", "int4": "int8_gop_s", "uint4": "int8_gop_s",
    "bf16": "bfloat16_gflop_s", "fp16": "float32_gflop_s", "fp32": "float32_gflop_s",
}  # fmt: skip
NUM_BYTES = {"none": 2.0, "int8": 1.0, "int4": 0.53}
# The beginning of a kernel's name -> the line that counts it.
KINDS = {
    "linear": "products", "gated_linear": "products", "experts": "experts", "route": "experts",
    "plan_attention": "attention", "attention": "attention", "store_heads": "store heads",
    "causal_convolution": "states", "delta_net": "states", "gated_norm": "states",
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


def run(
    shape: str = "0.6b", layers: int | None = None, quantization: tuple[Quantization, ...] = ("int8",),
    kv: tuple[str, ...] = ("bf16",), steps: tuple[str, ...] = tuple(STEPS), rounds: int = 3, threads: int = 2,
) -> None:  # fmt: skip
    published = EVERY[shape].cut(layers) if layers else EVERY[shape]
    named = {name: steps_of(name) for name in steps}
    for form in quantization:
        with TemporaryDirectory() as folder:
            write_config(Path(folder), published)
            model = dummy_model(Path(folder), form, threads)
        for kind in kv:
            bench = Bench(published, model, filled_memory(model, POOL_TOKENS, kind), load(), form, kind, peaks(threads))
            print(f"\n## {bench.library.variant}, weights {form}, keys and values {kind}; {json.dumps(bench.peaks)}")
            for name, (rows, common) in named.items():
                print("\n".join(table(bench, name, rows, common, rounds)), flush=True)


def steps_of(name: str) -> tuple[list[Rows], int]:
    """The steps of this name, and how many tokens their contexts have in common."""
    if found := re.fullmatch(r"(\d+)x(\d+)@(\d+)(?:\+(\d+))?", name):
        rows, tokens, context, common = (int(each or 0) for each in found.groups())
        return [[(tokens, context)] * rows], common
    if name not in STEPS:
        raise SystemExit(f"There is no step {name}; there are {', '.join(STEPS)}, and ROWSxTOKENS@CONTEXT[+COMMON].")
    return STEPS[name], 0


def peaks(threads: int) -> dict[str, float]:
    found = limits(threads)
    units = {unit: found[unit] or found["float32_gflop_s"] for unit in set(UNITS.values())}
    return units | {"read": found["read_gb_s"]["median"]}


@dataclass
class Bench:
    """A model with memory for keys and values, and what kernels of it can do at most."""

    shape: Shape
    model: Model
    memory: ModelMemory
    library: Library
    quantization: str
    kv_kind: str
    peaks: dict[str, float]  # operations, and bytes, a second

    def whole(self, rows: Rows, common: int) -> float:
        """Seconds of the step as the worker runs it."""
        return step_seconds(self.model, batch_of(self.model, self.memory, rows, common))

    def by_kind(self) -> Counter[str]:
        """Seconds of each kind of kernel in the step that ran last."""
        layers, head = self.model.forward_pass.records(self.memory)
        seconds: Counter[str] = Counter()
        for part, program in (("layers", layers.program), ("head", head.program)):
            for kernel, taken in self._called(program):
                name = kernel.removeprefix("penstock_")
                kind = next((kind for begin, kind in KINDS.items() if name.startswith(begin)), "others")
                seconds["head" if part == "head" and kind == "products" else kind] += taken
        return seconds

    def _called(self, program: Program) -> Iterator[tuple[str, float]]:
        for kernel, arguments in program.calls:
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.library.address(kernel))
            yield kernel, seconds_of(lambda function=function, arguments=arguments: function(arguments))

    def limits(self, rows: Rows, common: int) -> dict[str, float]:
        """Seconds that each kind needs at least, where that can be said."""
        config, size = self.shape.config, self.shape.head_size
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        tokens = sum(count for count, _ in rows)
        contexts = common + sum(context - common for _, context in rows)
        kept = [self.shape.keeps_states(layer) for layer in range(self.shape.layers)]
        attending = self.shape.layers - sum(kept)
        matrices = [each for each in tensors(self.shape) if len(each.shape) > 1 and each.part != CONVOLUTION]
        stored, unit = NUM_BYTES[self.quantization], UNITS[self.quantization]
        dense = sum(each.weights for each in matrices if each.name.startswith("blk.") and not is_expert(each))
        head = sum(each.weights for each in matrices if each.part == HEAD)
        least = {
            "products": self._least(unit, 2 * dense * tokens, dense * stored),
            "head": self._least(unit, 2 * head * len(rows), head * stored),
            "store heads": self._least(unit, 0, 4 * tokens * attending * (heads + 2 * kv_heads) * size * 2),
            "norms": self._least(unit, 0, 4 * tokens * self.shape.layers * config["hidden_size"] * 2 * 4),
        }
        if experts := [each for each in matrices if is_expert(each)]:
            weights, share = sum(each.weights for each in experts), experts[0].share
            used = 1 - (1 - share) ** tokens  # of the experts, where tokens choose by chance
            least["experts"] = self._least(unit, 2 * weights * share * tokens, weights * used * stored)
        else:
            least["activation"] = self._least(unit, 0, 4 * tokens * self.shape.layers * config["intermediate_size"] * 3)
        if "sliding_window" not in config and "kv_lora_rank" not in config:
            looks = sum(count * context - count * (count - 1) / 2 for count, context in rows)  # queries × keys they see
            kv_bytes = contexts * 2 * kv_heads * attending * KV_FORMATS[self.kv_kind].bytes_per_token(size)
            least["attention"] = self._least(UNITS[self.kv_kind], 4 * looks * heads * size * attending, kv_bytes)
        if any(kept):
            state = config["linear_num_value_heads"] * config["linear_key_head_dim"] * config["linear_value_head_dim"]
            # A pass over a state multiplies and adds for S × kept, k × change, o and the next token's Sᵀ k.
            operations, moved = 7 * state * tokens * sum(kept), 2 * 4 * state * len(rows) * sum(kept)
            least["states"] = self._least("float32_gflop_s", operations, moved)
        return least

    def _least(self, unit: str, operations: float, num_bytes: float) -> float:
        return max(operations / (self.peaks[unit] * 1e9), num_bytes / (self.peaks["read"] * 1e9))


def is_expert(tensor: Tensor) -> bool:
    return "_exps" in tensor.name


def table(bench: Bench, name: str, steps: list[Rows], common: int, rounds: int) -> Iterator[str]:
    """One line a kind: its milliseconds, its limit's, and the share that it reaches."""
    wholes: list[float] = []
    kinds: dict[str, list[float]] = {}
    least: Counter[str] = Counter()
    for rows in steps:
        least.update(bench.limits(rows, common))
    for _ in range(rounds):
        seconds: Counter[str] = Counter()
        whole = 0.0
        for rows in steps:
            bench.whole(rows, common)  # records, and warms up
            whole += bench.whole(rows, common)
            seconds.update(bench.by_kind())
        wholes.append(whole)
        for kind, taken in seconds.items():
            kinds.setdefault(kind, []).append(taken)
    whole, medians = median(wholes), {kind: median(taken) for kind, taken in kinds.items()}
    tokens = sum(count for rows in steps for count, _ in rows)
    limit = sum(least[kind] for kind in medians)  # without what other kernels do on their way, as activations
    found = f"{whole * 1e3:.1f} ms, {tokens / whole:,.0f} tokens a second"
    yield f"\n{name}: {found}, {limit / whole:.0%} of the limit ({tokens / limit:,.0f})\n"
    yield "| kernels | ms | limit | share of it | share of the step |"
    yield "| --- | --- | --- | --- | --- |"
    for kind, taken in sorted(medians.items(), key=lambda each: -each[1]):
        share = f"{least[kind] / taken:.0%}" if least[kind] else ""
        yield f"| {kind} | {taken * 1e3:.2f} | {least[kind] * 1e3:.2f} | {share} | {taken / whole:.0%} |"
    waiting = whole - sum(medians.values())
    yield f"| waiting, or less beside one another | {waiting * 1e3:.2f} | | | {waiting / whole:.0%} |"
