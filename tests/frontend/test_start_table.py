"""The table at the start names what memory is taken for, and nothing that nobody asked for."""

import msgspec

from penstock.frontend.console.start_table import start_table
from penstock.protocol.config import EngineConfig
from penstock.protocol.messages import MemoryPlan

PLAN = MemoryPlan("cpu", "a CPU", 0, 0, 0, 1 << 20, 64, 512, 512, 10_000, "float32", "float32")


def test_a_second_tier_has_a_row_where_there_is_one():
    config = EngineConfig.from_options("m", swap_space=0.25)
    table = start_table(config, msgspec.structs.replace(PLAN, num_cpu_blocks=256))
    assert "swap      256 MiB of CPU memory, 8,192 tokens" in table
    assert "swap" not in start_table(config, PLAN)
