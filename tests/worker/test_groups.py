"""Groups of layers: which layers share a memory; and each slot's table in a group, with blocks that were given back and
states that change at a position.
"""

from dataclasses import replace

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.tiny_model import tiny_model

from penstock.protocol.layer_groups import ABSENT, GroupChanges
from penstock.protocol.wire import column
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.description.config import ModelConfig, read_config
from penstock.worker.description.groups import groups_of, memory_bytes
from penstock.worker.description.parts.mixers import ShortConvolution
from penstock.worker.kv.kv_cache import KVShape, NativeKVCache
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.plan_error import PlanError
from penstock.worker.steps.block_tables import BlockTables
from penstock.worker.steps.state_tables import StateTables
from penstock.worker.steps.step_rows import StepRows


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> ModelConfig:
    return read_config(tiny_model(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=6))


def shapes(config: ModelConfig, max_model_len: int = 1000, **options) -> list[tuple]:
    found = groups_of(config, max_model_len, **options)
    return [(group.kind, group.window, group.layers) for group in found]


def test_full_attention_comes_first_then_windows_the_widest_first_then_states_by_shape(config):
    short, long = ShortConvolution(3, 8), ShortConvolution(4, 8)
    config = replace(config, windows=(16, None, 99, 16, None, None), mixers=(None, None, None, None, short, None))
    assert shapes(config) == [
        ("full", None, (1, 5)), ("window", 99, (2,)), ("window", 16, (0, 3)), ("state", None, (4,)),
    ]  # fmt: skip
    config = replace(config, windows=(None,) * 6, mixers=(short, None, long, short, None, long))
    assert [layers for _, _, layers in shapes(config)] == [(1, 4), (0, 3), (2, 5)]


def test_layers_alike_and_windows_that_no_request_leaves_or_gives_back_are_one_group(config):
    one = [("full", None, (0, 1, 2, 3, 4, 5))]
    assert shapes(config) == one
    config = replace(config, windows=(16, None) * 3)
    assert shapes(config, 16) == shapes(config, 1) == shapes(config, gives_back=False) == one
    assert len(shapes(config, 17)) == 2


def test_layers_that_see_to_both_sides_keep_one_layers_keys_for_all_of_their_group(config):
    config = replace(config, windows=(None, 16, 16) * 2)
    one_sided = memory_bytes(config, 10, 2)
    config = replace(config, is_two_sided=True)
    full, local = groups_of(config, 1000)
    assert [(group.layers, group.num_kept) for group in (full, local)] == [((0, 3), 1), ((1, 2, 4, 5), 1)]
    assert memory_bytes(config, 10, 2) * 6 == one_sided * 2
    kept = NativeKVCache.allocate(KVShape(full.num_kept, 2, 16), 3, 16, "fp32")
    memory = ModelMemory.of([kept, kept], [full.layers, local.layers], 16)
    assert memory.places == ((0, 0), (1, 0), (1, 0)) * 2


def test_layers_that_read_others_keep_nothing_and_the_rest_are_grouped_by_their_heads(tmp_path):
    config = read_config(tiny_model(tmp_path, "gemma4_text"))
    assert [heads.source for heads in config.heads] == [None] * 4 + [3, 3, 2]
    full, window = groups_of(config, config.max_position)
    assert (full.layers, full.num_kv_heads, full.head_dim) == ((2,), 1, 48)
    assert (window.layers, window.num_kv_heads, window.head_dim) == ((0, 1, 3), 1, 16)


# --- tables -----------------------------------------------------------------------------------------------------------

CPU, SIZE, WINDOW = TensorDevice(torch.device("cpu")), 16, 20


def rows(*spans: tuple[int, int, int]) -> StepRows:
    """Slot, first token to compute and the one after the last."""
    slots, starts, ends = (numpy.array(each, numpy.int64) for each in zip(*spans, strict=True))
    nowhere = numpy.zeros(len(slots), bool)
    return StepRows(slots, ends - starts, starts, ends, nowhere, nowhere, 0 * ends)


def changes(*appended: list) -> GroupChanges:
    """Of each row the blocks, or pairs of a state and its position."""
    pairs = [each if isinstance(each, tuple) else (each, 0) for row in appended for each in row]
    offsets = [sum(map(len, appended[:row])) for row in range(len(appended) + 1)]
    return GroupChanges(column(block for block, _ in pairs), column(offsets), column(start for _, start in pairs))


def test_a_table_may_begin_with_blocks_that_were_given_back():
    table, step = BlockTables(2, 8, 50, SIZE, WINDOW, CPU), rows((1, 52, 53))
    table.advance(step, changes([ABSENT, ABSENT, 7, 9]))
    found = table.step_rows(step, numpy.array([0]), numpy.array([52]))
    assert found.block_tables.tolist() == [[0, 0, 7, 9]]
    assert found.kv_slots.tolist() == [9 * SIZE + 4]


@for_each("window, span, blocks, sentence", [
    (WINDOW, (50, 53), [ABSENT, ABSENT, 7, 9], r"slots \[1\] read blocks that aren't there"),
    (WINDOW, (52, 53), [3, ABSENT, 7, 9], "where a token would read it"),
    (None, (20, 21), [ABSENT, 3], "where a token would read it"),
    (WINDOW, (52, 53), [ABSENT, ABSENT, 7], "its blocks reach 48"),
    (WINDOW, (52, 53), [ABSENT, ABSENT, 7, 50], r"outside 0\.\.49"),
    (WINDOW, (52, 53), [ABSENT, ABSENT, 7, -2], r"outside 0\.\.49"),
])  # fmt: skip
def test_a_plan_that_has_a_row_read_what_is_not_there_is_refused(window, span, blocks, sentence):
    with pytest.raises(PlanError, match=sentence):
        BlockTables(2, 8, 50, SIZE, window, CPU).advance(rows((1, *span)), changes(blocks))


def segments(table: StateTables, step: StepRows, appended: GroupChanges) -> list[tuple]:
    """Of each row its segments: first token and the one after the last, what is read and what is written."""
    found = table.advance(step, appended)
    starts, of_rows = found.starts.tolist(), found.of_rows.tolist()
    pieces = list(zip(starts[:-1], starts[1:], found.reads.tolist(), found.writes.tolist(), strict=True))
    return [pieces[first:end] for first, end in zip(of_rows[:-1], of_rows[1:], strict=True)]


Spans = list[tuple[int, int, int]]
# Steps of a slot: its row, the states that are appended, and the segments that it is cut into.
STORIES: dict[str, list[tuple[Spans, list[list], list]]] = {
    "a fresh sequence begins with zeros and goes on in place": [
        ([(2, 0, 5)], [[(7, 0)]], [[(0, 5, -1, 7)]]),
        ([(2, 5, 6)], [[]], [[(0, 1, 7, 7)]]),
    ],
    "a checkpoint within a chunk cuts its row": [
        (
            [(0, 0, 5), (1, 0, 10), (3, 0, 2)],
            [[(1, 0)], [(2, 0), (3, 4), (4, 9)], [(5, 0)]],
            [[(0, 5, -1, 1)], [(5, 9, -1, 2), (9, 14, 2, 3), (14, 15, 3, 4)], [(15, 17, -1, 5)]],
        ),
    ],
    "a checkpoint at a chunk's end is read by the next step": [
        ([(0, 0, 8)], [[(1, 0), (2, 8)]], [[(0, 8, -1, 1)]]),
        ([(0, 8, 9)], [[]], [[(0, 1, 1, 2)]]),
        ([(0, 9, 10)], [[(3, 9)]], [[(0, 1, 2, 3)]]),
    ],
    "a hit reads the checkpoint and writes a state of its own": [
        ([(0, 64, 70)], [[(9, 0), (4, 64)]], [[(0, 6, 9, 4)]]),
        ([(0, 70, 71)], [[]], [[(0, 1, 4, 4)]]),
    ],
}


@for_each("story", STORIES)
def test_segments_of_rows_read_and_write_the_states_of_their_tokens(story):
    table = StateTables(4, 30, 16)
    for spans, appended, expected in STORIES[story]:
        assert segments(table, rows(*spans), changes(*appended)) == expected


def test_a_fork_goes_on_in_its_copy():
    table = StateTables(4, 30, 16)
    table.fork(1, numpy.array([12]))
    assert segments(table, rows((1, 30, 31)), changes([])) == [[(0, 1, 12, 12)]]


@for_each("step, appended, sentence", [
    (rows((0, 3, 5)), changes([]), "with no state to write"),
    (rows((0, 0, 5)), changes([(1, 0), (2, 6)]), "its tokens end at 5"),
    (rows((0, 0, 5)), changes([(30, 0)]), r"outside 0\.\.29"),
    (rows((0, 0, 5)), GroupChanges(column([1]), column([0, 1])), "1 states and 0 positions"),
    (rows((0, 0, 5)), GroupChanges(column([1]), column([0, 2]), column([0])), "2 block offsets"),
])  # fmt: skip
def test_a_plan_that_breaks_a_rule_of_states_is_refused(step, appended, sentence):
    with pytest.raises(PlanError, match=sentence):
        StateTables(4, 30, 16).advance(step, appended)
