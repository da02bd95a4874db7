"""What the ranks of eight GPUs say to one another in a step, counted on torch's fake process group."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from builders import interpreted
from builders.cases import for_each
from builders.hand_planned import new, plan
from builders.runner_harness import SlottedRunner, fast_steps, no_mask, slotted_runner
from builders.tiny_model import tiny_model
from torch.testing._internal.distributed.fake_pg import FakeStore

from penstock.kernels.triton import fused_operations
from penstock.kernels.triton.launch.switches import Switch
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.backends.triton import backend, card_ranks
from penstock.worker.backends.triton.card_ranks import CardRanks

SIZE, LAYERS, HIDDEN, VOCABULARY, PROMPT = 8, 2, 32, 80, 6


@pytest.fixture(scope="module", autouse=True)
def fake_group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=SIZE)
    yield
    dist.destroy_process_group()


def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Each collective from here on, and the bytes that this rank gives."""
    found: list[tuple[str, int]] = []
    for name, place in (("all_reduce", 0), ("all_gather", 1), ("gather", 0), ("broadcast", 0)):
        call = getattr(dist, name)

        def counted(*given, name=name, place=place, call=call, **named):
            found.append((name, given[place].nbytes))
            return call(*given, **named)

        monkeypatch.setattr(dist, name, counted)
    return found


def runner_of(folder: Path, ranks: CardRanks, **options: Any) -> SlottedRunner:
    sizes = dict(hidden_size=HIDDEN, num_attention_heads=8, num_key_value_heads=8, head_dim=16, vocab_size=VOCABULARY)
    tiny_model(folder, "qwen3", num_hidden_layers=LAYERS, intermediate_size=64, **sizes)
    model = interpreted.on_triton(folder, dtype="bfloat16", ranks=ranks, options=BackendOptions(**options))
    return slotted_runner(model, num_slots=3)


ENTERING, ANSWERING = plan(0, [(0, PROMPT, [0])], new=[new(0, range(5, 11))]), plan(1, [(0, 1, [])])


@for_each("deterministic", [False, True])
def test_a_step_sums_twice_a_layer_and_once_for_the_embedding_and_gathers_logits(deterministic, tmp_path, monkeypatch):
    ranks = CardRanks(0, SIZE, device=torch.device("cpu"), is_ordered=deterministic)
    runner = runner_of(tmp_path, ranks, deterministic=deterministic)
    for tokens, each in ((PROMPT, ENTERING), (1, ANSWERING)):
        with monkeypatch.context() as counting:
            found = said(counting)
            runner.step(each, no_mask)
        # In a fixed order every rank adds up what all have gathered. Logits are those of the rows that draw.
        add_up = ("all_gather" if deterministic else "all_reduce", tokens * HIDDEN * 2)
        assert found == [add_up] * (2 * LAYERS + 1) + [("all_gather", VOCABULARY // SIZE * 2)], tokens


def test_ranks_may_take_the_short_way_and_the_first_may_get_the_logits_alone(tmp_path, monkeypatch):
    for module, switch in ((card_ranks, "FIRST_LOGITS"), (fused_operations, "STREAM_SUMS"), (backend, "FAST_RANKS")):
        monkeypatch.setattr(module, switch, Switch("PENSTOCK_UNHEARD_OF", True, ""))
    ranks = CardRanks(0, SIZE, device=torch.device("cpu"), is_ordered=False)
    runner = runner_of(tmp_path, ranks)
    runner.fast_decode = runner.model.fast_decode(runner.memory, runner.table, ranks, runner.trace)
    runner.step(ENTERING, no_mask)
    taken, found = fast_steps(runner), said(monkeypatch)
    runner.step(ANSWERING, no_mask)
    assert taken == [1]
    logits, token_and_fault = ("gather", VOCABULARY // SIZE * 2), ("broadcast", 16)
    assert found == [("all_reduce", HIDDEN * 2)] * (2 * LAYERS + 1) + [logits, token_and_fault]
