"""Count the kernels that a card compiles while it serves: requests, over the real scheduler and the real worker, on a
Hopper that is not there. Kernels are launched by Triton's own launch path, as far as the compiler.

    python absent_card.py FOLDER MOST FORM…  prints, by form and trace, what was compiled after the warm-up; and of so
                                             many of the kernels that were launched, what they take of a multiprocessor

Tensors lie on the CPU and a launch computes nothing, but what a card would have compiled for it is counted. For a
process of its own, which plugs the card in before it imports any kernel. Knows no kernel by name. The warm-up is a
second start's, which finds in a file what the first one has tuned, and so tries nothing.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy
import torch
import triton
from builders.adapters import adapter
from builders.erratic_drafts import draft_erratically
from builders.ggml_types import q4_k_m
from builders.gguf_models import as_gguf
from builders.runner_harness import TinyEngine, no_mask, prompt, slotted_runner
from builders.seeing_models import ERNIE, FAMILIES, seeing_model
from builders.tiny_model import tiny_model
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from penstock.engine.admission.limits import DraftLimits
from penstock.kernels import triton as kernels
from penstock.kernels.registry import OPS
from penstock.kernels.triton.launch import tuning
from penstock.kernels.triton.launch.compiled import resources
from penstock.protocol.messages import Prompt

TARGET = 90


# The answers that a launch wants of Triton's driver.
DRIVER = SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", TARGET, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda device: 0,
)


class Launched(NamedTuple):
    """What Triton's compiler is given for a launch."""

    kernel: JITFunction
    signature: dict[str, str]
    constants: dict[Any, Any]
    options: Any
    attributes: dict[Any, Any]

    def taken(self) -> dict[str, int]:
        """Of a multiprocessor, by one program of the machine code."""
        source = self.kernel.ASTSource(self.kernel, self.signature, self.constants, self.attributes)
        found = resources(
            triton.compile(source, target=DRIVER.get_current_target(), options=vars(self.options)), TARGET
        )
        return {**found._asdict(), "warps": self.options.num_warps, "programs": found.programs(self.options.num_warps)}


@dataclass
class Card:
    compiled: list[str] = field(default_factory=list)  # kernels, each with what it was compiled for
    num_launches: int = 0
    launched: dict[str, Launched] = field(default_factory=dict)  # by kernel and what it was compiled for
    _caches: list[dict[str, Any]] = field(default_factory=list)  # Triton's, by kernel

    def plug_in(self) -> None:
        triton.runtime.driver.set_active(DRIVER)
        JITFunction._do_compile = lambda kernel, *given: self._compile(kernel, *given)
        tuning.architecture = lambda: TARGET
        tuning._milliseconds = lambda choice, launch: choice.num_stages  # somebody is the fastest
        for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
            setattr(torch.cuda, name, lambda *given: None)
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
            setattr(torch.cuda, name, lambda *given: 0)
        torch.cuda.get_device_name = lambda *given: "absent"
        list(kernels.modules())
        from penstock.kernels.triton.attention import paged

        paged.library = lambda *asked: lambda query, *rest: torch.empty_like(query)
        for op in OPS.values():
            if "triton" in op.versions:
                op._chosen["cpu"] = op.versions["triton"]
        from penstock.worker.backends.triton import cuda_graph

        cuda_graph._called_again = _run_and_called_again
        # From here on: what is compiled into kernels has been read.
        kernels.lack, kernels.is_interpreted = lambda: "", lambda: True

    def forget(self) -> None:
        """All that was compiled."""
        self.compiled.clear()
        self.launched.clear()
        for kept in self._caches:
            kept.clear()

    def _compile(self, kernel: JITFunction, key: str, signature: dict[str, str], device: int, *rest: Any) -> Any:
        self.compiled.append(f"{kernel.__name__} {key}")
        self.launched[self.compiled[-1]] = Launched(kernel, signature, *rest[:3])

        def run(*given: Any) -> None:
            self.num_launches += 1
            if signature.get("chosen", "").startswith("*i64"):
                given[kernel.arg_names.index("chosen") - len(kernel.arg_names)].zero_()  # a token that there is

        made = SimpleNamespace(run=run, function=None, packed_metadata=None, launch_metadata=lambda *given: None)
        cache = kernel.device_caches[device][0]
        cache[key] = made
        self._caches.append(cache)
        return made


def _run_and_called_again(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """As a card runs what it captures."""
    run()
    return run


# --- what it serves ---------------------------------------------------------------------------------------------------

ROWS, BUDGET, LONGEST = 40, 600, 1200
ADAPTER = "own"
# Model, and how it is loaded; `stored_as` is what the tensors of a GGUF file are.
FORMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bf16": ("qwen3", {}, {}),
    "int8": ("qwen3", {}, {"quantization": "int8"}),
    "wint8": ("llama", {}, {"quantization": "wint8"}),
    "int4": ("qwen3", {}, {"quantization": "int4"}),
    "float16": ("qwen2", {}, {"dtype": "float16"}),
    "window": ("mistral", {"sliding_window": 50}, {}),
    "deterministic": ("qwen3", {}, {"deterministic": True}),
    "experts": ("qwen3_moe", {}, {}),
    "experts, int4": ("qwen3_moe", {}, {"quantization": "int4"}),
    "experts, deterministic": ("mixtral", {}, {"deterministic": True}),
    "shared expert, int8": ("qwen2_moe", {}, {"quantization": "int8"}),
    "blocks": ("qwen3", {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}, {"stored_as": q4_k_m}),
    "adapters": ("llama", {}, {"max_loras": 2, "max_lora_rank": 8}),
    "experts by kind": (ERNIE, {}, {}),
    "whole spans": ("Gemma3", {}, {}),
    "whole spans, deterministic": ("Gemma3", {}, {"deterministic": True}),
}
PARAMS: tuple[dict[str, Any], ...] = (
    {}, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 0.7, "top_k": 20, "min_p": 0.05}, {"logprobs": 3},
    {"logprobs": 11, "temperature": 0.9}, {"prompt_logprobs": 2}, {"temperature": 1.0, "repetition_penalty": 1.2},
    {"frequency_penalty": 0.5, "presence_penalty": 0.1, "min_tokens": 2}, {"logit_bias": {7: 2.0}},
)  # fmt: skip
Trace = Callable[[random.Random], Iterator[list[Prompt]]]


def draining(chance: random.Random) -> Iterator[list[Prompt]]:
    """As many requests as there is room for, all at once; each ends at another step."""
    yield [_request(chance, number, chance.randint(1, 60), 3 + 2 * number, {}) for number in range(ROWS)]


def mixed(chance: random.Random) -> Iterator[list[Prompt]]:
    """Prompts of every length come while others are answered, and ask for every way of choosing tokens."""
    for number in range(50):
        params = PARAMS[chance.randrange(len(PARAMS))] if number % 2 else {}
        yield [_request(chance, number, int(10 ** chance.uniform(0, 3)), chance.randint(1, 40), params)]


def _request(chance: random.Random, number: int, length: int, answer: int, params: dict[str, Any]) -> Prompt:
    tokens = [chance.randrange(5, 300) for _ in range(length)]
    return prompt(number + 1, tokens, seed=number, max_tokens=answer, ignore_eos=True, **params)


def main(folder: Path, most: int, forms: list[str]) -> None:
    card = Card()
    card.plug_in()
    for form in forms:
        model = started(card, folder / form, form)
        for trace in (draining, mixed):
            runner = ready(model)
            card.compiled.clear()
            before, (steps, drafts) = card.num_launches, serve(runner, trace)
            found = {
                "steps": steps,
                "drafts": drafts,
                "launches": card.num_launches - before,
                "compiled": list(card.compiled),
            }
            print(json.dumps([form, trace.__name__, found]), flush=True)
        taken = {name: launched.taken() for name, launched in islice(card.launched.items(), most)}
        print(json.dumps([form, "kernels", taken]), flush=True)


def started(card: Card, folder: Path, form: str) -> Any:
    """The model, warmed up."""
    from penstock.worker.backends.backend import BackendOptions
    from penstock.worker.start.card.warm_up import warm_up
    from penstock.worker.start.load import load_model
    from penstock.worker.start.memory.profile import Size

    family, shape, options = FORMS[form]
    files = folder / "model"
    if family in FAMILIES:
        seeing_model(files, family)
    else:
        tiny_model(files, family, num_hidden_layers=1, max_position_embeddings=LONGEST, **shape)
    options = {"dtype": "bfloat16", **options}
    if types := options.pop("stored_as", None):
        files = as_gguf(files, folder / "in blocks", types)
    backend = BackendOptions(deterministic=options.pop("deterministic", False), drafts=True, captured_tokens=BUDGET)
    model = load_model(files, options=backend, **options)
    if model.adapters is not None:
        model.adapters.load(0, adapter(folder / "adapter", files, rank=5))
    for _ in ("first start", "second"):
        card.forget()
        for each in tuning._ALL.values():
            each._known.clear()
        with torch.inference_mode():
            memory, kept = model.plain_memory(1, 16), folder / "kept"
            warm_up(model, Size(ROWS, BUDGET), memory, LONGEST, model.backend.device, kept)
    return model


def ready(model: Any) -> Any:
    """A runner with memory for shorter requests than were hoped for, whose steps are captured."""
    from penstock.worker.backends.triton.graph_capture import GraphCapture

    runner = slotted_runner(model, num_blocks=2001, max_model_len=LONGEST - 99, num_slots=ROWS)
    if (vision := model.config.vision) is not None and vision.family.has_whole_spans:
        runner._batch = _of_pictures
    capture = GraphCapture(model.forward_pass, model.sample, runner.table, runner.memory, runner.ranks)
    capture.capture_all(1 << 30, lambda number, total: None)
    return runner


def _of_pictures(*given: Any) -> Any:
    """A step whose prompts are pictures."""
    from penstock.worker.backends.triton.device_batch import DeviceBatch

    batch = DeviceBatch(*given)
    if not batch.only_decodes:
        batch.seen_ends = numpy.repeat(batch.step_rows.ends, batch.step_rows.num_tokens)
    return batch


def serve(runner: Any, trace: Trace) -> tuple[int, int]:
    """How many steps it takes, and how many drafts these have: some where they change no answer."""
    draft_limits = DraftLimits(each=7, all=56, least=7) if runner.model.backend.is_deterministic else None
    engine = TinyEngine(runner, max_num_batched_tokens=BUDGET, shares_prefixes=False, draft_limits=draft_limits)
    draft_erratically(runner, seed=0)
    if runner.model.adapters is not None:
        engine.load_adapters(ADAPTER)
    steps, coming = 0, trace(random.Random(0))
    while True:
        for each in next(coming, ()):
            if runner.model.adapters is not None and each.request_id % 3 == 0:
                each.params.lora_name = ADAPTER
            engine.scheduler.add(each)
        for _ in range(3):
            plan = engine.scheduler.plan()
            if plan is None:
                return steps, engine.scheduler.counters.draft_tokens
            engine.scheduler.finish(runner.step(plan, no_mask))
            engine.scheduler.take_ends()
            steps += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
