"""What a start shows: a table of what memory is taken for, and a bar where it is long."""

import io
import re

import msgspec
from builders.cases import for_each

from penstock.frontend.console import logs, progress
from penstock.frontend.console.progress import StartBar
from penstock.frontend.console.start_table import start_table, start_words
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.stats import StartProgress

PLAN = MemoryPlan("cpu", "a CPU", 0, 0, 0, [GroupPlan("full", 2, 1 << 20, 64)], 512, 512, 10_000, "float32", "float32")


def test_a_second_tier_and_a_named_method_of_drafts_have_rows_where_there_are_some():
    config = EngineConfig.from_options("m", swap_space=0.25)
    table = start_table(config, msgspec.structs.replace(PLAN, groups=[GroupPlan("full", 2, 1 << 20, 64, None, 256)]))
    assert "swap      256 MiB of CPU memory, 8,192 tokens" in table
    assert "swap" not in start_table(config, PLAN)
    kept = EngineConfig.from_options("m", prefix_cache_dir="/kept", prefix_cache_size="3GiB")
    assert "on disk   prefixes, up to 3.0 GiB in /kept" in start_table(kept, PLAN)
    assert "on disk" not in start_table(config, PLAN)
    drafting = EngineConfig.from_options("m", speculative_config={"method": "ngram", "num_speculative_tokens": 4})
    assert "drafts    ngram, up to 4 per step" in start_table(drafting, PLAN)
    assert "drafts" not in start_table(config, PLAN)


def test_each_kind_of_layers_has_a_row_where_there_are_several():
    groups = [
        GroupPlan("full", 4, 1 << 20, 64),
        GroupPlan("window", 22, 3 << 20, 40, window=512),
        GroupPlan("state", 1, 50 << 20, 6),
    ]
    config = EngineConfig.from_options("m")
    table = start_table(config, msgspec.structs.replace(PLAN, groups=groups))
    assert re.search(r"KV cache +484 MiB float32, total_block_num:64 x 32 = 2,048 tokens", table)
    assert re.search(r"  full +64 MiB for 4 layers, 64 blocks of 32 tokens\n", table)
    assert re.search(r"  window +120 MiB for 22 layers with windows of 512 tokens, 40 blocks of 32 tokens\n", table)
    assert re.search(r"  state +300 MiB for 1 layer, 6 states of 50 MiB\n", table)
    assert "for 2 layers" not in start_table(config, PLAN)


def test_a_start_is_one_line_unless_more_is_asked_for_or_something_is_unusual(monkeypatch):
    config, odd = EngineConfig.from_options("m"), msgspec.structs.replace(PLAN, notes=["Something is odd."])
    line = "penstock is ready: m on a CPU, 64 MiB of memory (64 MiB for total_block_num:64), 512 tokens per request"
    assert start_words(config, PLAN, is_verbose=False) == line
    assert start_words(config, PLAN, is_verbose=True) == start_table(config, PLAN)
    assert start_words(config, odd, is_verbose=False) == start_table(config, odd)
    shared = start_words(EngineConfig.from_options("m", tensor_parallel_size=2), PLAN, is_verbose=False)
    assert "a CPU x 2 ranks, 128 MiB of memory (64 MiB x 2 ranks for" in shared
    assert not logs.is_verbose()
    monkeypatch.setenv("PENSTOCK_LOG", "verbose")
    assert logs.is_verbose() and not logs.is_quiet(False)


@for_each("columns", [60, 40, 24])
def test_in_a_narrow_window_rows_are_broken_between_words(columns):
    config = EngineConfig.from_options("m", max_model_len=512)
    plan = msgspec.structs.replace(PLAN, notes=("A note that is longer than a narrow window, too.",))
    whole, narrow = start_table(config, plan), start_table(config, plan, columns)
    assert narrow.split() == whole.split()  # each word, and each number, whole
    longest = max(len(word) for word in whole.split())
    assert all(len(line) <= max(columns, 12 + longest) for line in narrow.splitlines())
    assert re.search(r"\n  KV cache  .*\n {12}\S", narrow)
    assert start_table(config, plan, 400) == whole


@for_each("is_shown, is_terminal", [(True, True), (False, True), (True, False)])
def test_a_terminal_alone_sees_how_far_a_long_start_is(is_shown, is_terminal, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: is_terminal
    monkeypatch.setattr(progress, "StandardError", lambda: terminal)
    bar = StartBar(is_shown=is_shown)
    for done in (1, 2, 3):
        bar.show(StartProgress("Capturing steps", done, 3))
    text = terminal.getvalue()
    assert ("Capturing steps" in text and "/3" in text) if is_shown and is_terminal else text == ""
