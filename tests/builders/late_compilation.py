"""Count the kernels that a card compiles while it serves: requests, over the real scheduler and the real worker, on a
Hopper that is not there (`absent_card.py`).

    python late_compilation.py FOLDER MOST FORM…  prints, by form and trace, what was compiled after the warm-up; and of
                                                  so many of the kernels that were launched, what they take of a
                                                  multiprocessor

For a process of its own; `checkpoint` has written the models of these forms into the folder, in one that has imported
transformers anyway. The warm-up is a second start's, which finds in a file what the first one has tuned, and so tries
nothing.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import torch
from builders.absent_card import Card
from builders.adapters import adapter
from builders.erratic_drafts import draft_erratically
from builders.gguf_models import as_gguf, q4_k_m
from builders.runner_harness import SlottedRunner, TinyEngine, no_mask, prompt, slotted_runner
from builders.seeing_models import ERNIE, FAMILIES, seeing_model
from builders.tiny_model import tiny_model

from penstock.engine.admission.limits import DraftLimits
from penstock.kernels.triton.launch import tuning
from penstock.protocol.messages import Prompt

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
    "states": ("qwen3_5_text", {"num_hidden_layers": 2}, {}),
    "states, deterministic": ("qwen3_5_text", {"num_hidden_layers": 2}, {"deterministic": True}),
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


def checkpoint(folder: Path, form: str, **sizes: int) -> None:
    """Write a form's model into its part of the folder; `sizes` are of one that sees nothing."""
    family, shape, _ = FORMS[form]
    files = folder / form / "model"
    if family in FAMILIES:
        seeing_model(files, family)
    else:
        tiny_model(files, family, **{"num_hidden_layers": 1, "max_position_embeddings": LONGEST, **shape, **sizes})


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
        found = {name: launched.taken() for name, launched in islice(card.launched.items(), most)}
        taken = {name: {**each._asdict(), "programs": each.programs} for name, each in found.items()}
        print(json.dumps([form, "kernels", taken]), flush=True)


def loaded(folder: Path, form: str, drafts: bool) -> Any:
    """The model from a form's part of the folder."""
    from penstock.worker.backends.backend import BackendOptions
    from penstock.worker.start.load import load_model

    files = folder / "model"
    options = {"dtype": "bfloat16", **FORMS[form][2]}
    if types := options.pop("stored_as", None):
        files = as_gguf(files, folder / "in blocks", types)
    backend = BackendOptions(deterministic=options.pop("deterministic", False), drafts=drafts, captured_tokens=BUDGET)
    return load_model(files, options=backend, **options)


def started(card: Card, folder: Path, form: str) -> Any:
    """The model, warmed up."""
    from penstock.worker.start.card.warm_up import warm_up
    from penstock.worker.start.memory.profile import Size

    model = loaded(folder, form, drafts=True)
    if model.adapters is not None:
        model.adapters.load(0, adapter(folder / "adapter", folder / "model", rank=5))
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
    runner = captured(model, num_blocks=2001, max_model_len=LONGEST - 99, num_slots=ROWS)
    if (vision := model.config.vision) is not None and vision.family.has_whole_spans:
        runner._batch = _of_pictures
    return runner


def captured(model: Any, **sizes: int) -> SlottedRunner:
    """An empty runner whose steps are captured."""
    from penstock.worker.backends.triton.graph_capture import GraphCapture

    runner = slotted_runner(model, **sizes)
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
