"""What a card compiles while it serves: requests, over the real scheduler and the real worker, on `absent_card`.

    python absent_card_traces.py FOLDER    prints, by form and trace, what was compiled after the warm-up
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from builders.absent_card import Card
from builders.runner_harness import TinyEngine, no_mask, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.messages import Prompt

ROWS, BUDGET, LONGEST = 40, 256, 1200
FORMS: dict[str, dict[str, Any]] = {
    "bf16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
    "int4": {"dtype": "bfloat16", "quantization": "int4"},
    "deterministic": {"dtype": "bfloat16", "deterministic": True},
}
PARAMS = (
    {},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 20, "min_p": 0.05},
    {"logprobs": 3},
    {"temperature": 1.0, "repetition_penalty": 1.2},
    {"frequency_penalty": 0.5, "presence_penalty": 0.1},
)


def draining(chance: random.Random) -> Iterator[list[Prompt]]:
    """As many requests as there is room for, all at once; each ends at another step."""
    yield [_request(chance, number, chance.randint(1, 60), 3 + 2 * number, {}) for number in range(ROWS)]


def mixed(chance: random.Random) -> Iterator[list[Prompt]]:
    """Prompts of every length come while others are answered, and ask for every way of choosing tokens."""
    for number in range(120):
        length = int(10 ** chance.uniform(0, 3))
        params = PARAMS[chance.randrange(len(PARAMS))] if number % 2 else {}
        yield [_request(chance, number, length, chance.randint(1, 40), params)]


def _request(chance: random.Random, number: int, length: int, answer: int, params: dict[str, Any]) -> Prompt:
    tokens = [chance.randrange(5, 300) for _ in range(length)]
    return prompt(number + 1, tokens, seed=number, max_tokens=answer, ignore_eos=True, **params)


def main(folder: Path) -> None:
    card = Card()
    card.plug_in()
    from penstock.worker.memory import Size
    from penstock.worker.models.load import load_model
    from penstock.worker.warm_up import warm_up

    tiny = tiny_model(folder / "model", "qwen3", num_hidden_layers=1, max_position_embeddings=LONGEST)
    for form, options in FORMS.items():
        card.forget()
        model = load_model(tiny, **options)
        with torch.inference_mode():
            warm_up(model, Size(ROWS, BUDGET), model.kv_memory(1, 16), LONGEST, torch.device("cpu"), folder / form)
        for trace in (draining, mixed):
            card.compiled.clear()
            before = card.num_launches
            steps = serve(model, trace)
            found = {"steps": steps, "launches": card.num_launches - before, "compiled": list(card.compiled)}
            print(json.dumps([form, trace.__name__, found]), flush=True)


def serve(model: Any, trace: Any) -> int:
    runner = slotted_runner(model, num_blocks=ROWS * LONGEST // 16, max_model_len=LONGEST, num_slots=ROWS)
    engine = TinyEngine(runner, max_num_batched_tokens=BUDGET, shares_prefixes=False)
    steps, coming = 0, trace(random.Random(0))
    while True:
        for each in next(coming, ()):
            engine.scheduler.add(each)
        for _ in range(3):
            plan = engine.scheduler.plan()
            if plan is None:
                return steps
            engine.scheduler.finish(runner.step(plan, no_mask))
            engine.scheduler.take_ends()
            steps += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
