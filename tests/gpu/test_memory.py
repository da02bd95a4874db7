"""A tree takes of a card what it may, counting what others hold; and once it runs, it takes no more."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
import torch
from builders.on_card import SMALL, generated
from builders.runner_harness import TinyEngine, prompt, slotted_runner

from penstock import LLM, SamplingParams
from penstock.frontend.models.model_files import find_model
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.start.load import load_model

GIB = 1 << 30
SHARE, HELD_BY_ANOTHER = 0.3, 0.1  # of the card
_HOLD = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
input()
"""
# Segments of the allocator, which frees what a copy still reads a little later now and a little sooner then.
_MAY_GROW = {"cuda": 4 << 20, "cpu": 64 << 20}


# As a person starts a tree: it warms up, measures a step, and fills its share.
FILLED = {name: value for name, value in SMALL.items() if name not in ("kv_cache_memory", "use_warmup")}


@contextmanager
def another_holds(num_bytes: int) -> Iterator[None]:
    words = [sys.executable, "-c", _HOLD, str(num_bytes)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield
        other.communicate("\n", timeout=60)


def used_and_total() -> tuple[int, int]:
    free, total = torch.cuda.mem_get_info()
    return total - free, total


def test_a_tree_brings_a_card_s_use_up_to_its_share_and_counts_what_another_holds(card):
    _, total = used_and_total()
    with another_holds(int(HELD_BY_ANOTHER * total)):
        before, _ = used_and_total()
        with LLM("pocket", device=card, gpu_memory_utilization=SHARE, **FILLED) as llm:
            generated(llm, [[5, 6, 7]] * 32, SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
            used, _ = used_and_total()
            plan = llm._session.plan
    assert used <= SHARE * total
    # It is filled, too: what is left is room for activations and libraries.
    assert used >= SHARE * total - 2 * GIB
    assert plan.num_blocks * plan.block_bytes <= SHARE * total - before


def test_a_second_tree_takes_what_its_share_leaves_beside_the_first(card):
    _, total = used_and_total()
    with (
        LLM("pocket", device=card, gpu_memory_utilization=SHARE, **FILLED) as first,
        LLM("pocket", device=card, gpu_memory_utilization=2 * SHARE, **FILLED) as second,
    ):
        for llm in (first, second):
            generated(llm, [[5, 6, 7]] * 8, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
        used, _ = used_and_total()
    assert SHARE * total < used <= 2 * SHARE * total


def held(device: str) -> int:
    """Bytes that this process has of the device's memory."""
    if device == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.memory_reserved()
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_five_hundred_steps_take_no_memory_once_all_sizes_were_met(device, quantization):
    folder = find_model("pocket").folder
    model = load_model(folder, device=TensorDevice(torch.device(device)), dtype="bfloat16", quantization=quantization)
    runner = slotted_runner(model, num_blocks=512, max_model_len=256, num_slots=16)
    engine = TinyEngine(runner)

    def once(first_id: int) -> None:
        """Rows come and go: 16 answers of different lengths, greedy and sampled."""
        asked = [
            prompt(first_id + row, [(7 * row + place) % 1400 + 3 for place in range(3 + 5 * row)], seed=row,
                   max_tokens=20 + 4 * row, temperature=row % 2)
            for row in range(16)
        ]  # fmt: skip
        assert all(answer.finish_reason == "length" for answer in engine.run(*asked))

    for warm in range(3):
        once(100 * warm)
    before, steps = held(device), len(engine.plans)
    for number in range(3, 1000):
        once(100 * number)
        if len(engine.plans) - steps >= 500:
            break
    grown = held(device) - before
    assert grown <= _MAY_GROW[device], f"{grown:,} bytes more after 500 steps"
