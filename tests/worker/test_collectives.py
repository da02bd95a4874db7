"""What the ranks of eight GPUs say to one another in a step, counted on torch's fake process group."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from builders import interpreted
from builders.cases import for_each
from builders.hand_planned import new, plan
from builders.runner_harness import no_mask, slotted_runner
from builders.tiny_model import tiny_model
from torch.testing._internal.distributed.fake_pg import FakeStore

from penstock.worker.backends.backend import BackendOptions
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
    for name, place in (("all_reduce", 0), ("all_gather", 1), ("broadcast", 0)):
        call = getattr(dist, name)

        def counted(*given, name=name, place=place, call=call, **named):
            found.append((name, given[place].nbytes))
            return call(*given, **named)

        monkeypatch.setattr(dist, name, counted)
    return found


@for_each("deterministic", [False, True])
def test_a_step_sums_twice_a_layer_and_once_for_the_embedding_and_gathers_logits(deterministic, tmp_path, monkeypatch):
    sizes = dict(hidden_size=HIDDEN, num_attention_heads=8, num_key_value_heads=8, head_dim=16, vocab_size=VOCABULARY)
    folder = tiny_model(tmp_path, "qwen3", num_hidden_layers=LAYERS, intermediate_size=64, **sizes)
    ranks = CardRanks(0, SIZE, device=torch.device("cpu"), is_ordered=deterministic)
    options = BackendOptions(deterministic=deterministic)
    runner = slotted_runner(interpreted.on_triton(folder, dtype="bfloat16", ranks=ranks, options=options), num_slots=3)
    for tokens, each in ((PROMPT, plan(0, [(0, PROMPT, [0])], new=[new(0, range(5, 11))])), (1, plan(1, [(0, 1, [])]))):
        with monkeypatch.context() as counting:
            found = said(counting)
            runner.step(each, no_mask)
        # In a fixed order every rank adds up what all have gathered. Logits are float32, of the rows that draw.
        add_up = ("all_gather" if deterministic else "all_reduce", tokens * HIDDEN * 2)
        assert found == [add_up] * (2 * LAYERS + 1) + [("all_gather", VOCABULARY // SIZE * 4)], tokens
