"""A prefix that nobody has used for `prefix_cache_ttl` seconds is not found any more, in neither tier; before it is."""

import pytest
from builders.engine_harness import Harness, key
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.engine.memory.blocks import BlockPool
from penstock.engine.memory.offload import SecondTierIndex
from penstock.engine.memory.time_to_live import TimeToLive

TTL = 10.0
FULL = 36  # of its tokens are found: the last one must be computed


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def named(pool: BlockPool, number: int) -> list[int]:
    table = pool.allocate(1)
    pool.name(table[0], key(number))
    return table


# --- the pool ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock) -> BlockPool:
    return BlockPool(3, time_to_live=TimeToLive(TTL, clock))


def test_a_block_whose_time_is_over_is_reused_first_and_finding_it_is_no_use(pool, clock):
    old, new = named(pool, 1), named(pool, 2)
    pool.release(new)
    clock.now += TTL - 1
    pool.release(old)
    pool.use(key(2))
    clock.now += TTL - 1
    assert pool.use(key(2)) is not None
    free = pool.free_blocks()
    assert pool.find(key(1)) == old[0]
    clock.now += 1
    assert pool.find(key(1)) is None
    assert pool.free_blocks() == free, "only a use reorders what has expired"
    assert pool.use(key(1)) is None
    assert pool.free_blocks()[0] == old[0]


class Expected:
    """What the pool must find, told with every key's whole history."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.pool = BlockPool(6, self.on_evicted, TimeToLive(TTL, self.clock))
        self.held: list[int] = []
        self.block_of: dict[bytes, int] = {}
        self.last_use: dict[bytes, float] = {}

    def is_found(self, name: bytes) -> bool:
        block = self.block_of.get(name)
        return block is not None and (block in self.held or self.clock.now - self.last_use[name] < TTL)

    def on_evicted(self, name: bytes, block: int, last_use: float) -> None:
        assert self.is_found(name) and last_use == self.last_use[name], "what is over is not kept elsewhere"

    def compute(self, name: bytes) -> None:
        if self.pool.num_free:
            [block] = self.pool.allocate(1)
            self.block_of = {name: other for name, other in self.block_of.items() if other != block}
            self.pool.name(block, name)
            if not self.is_found(name):
                self.block_of[name] = block
            self.last_use[name] = self.clock.now
            self.held.append(block)

    def use(self, name: bytes) -> None:
        found, block = self.pool.find(name), self.pool.use(name)
        assert found == block == (self.block_of[name] if self.is_found(name) else None)
        if block is not None:
            self.last_use[name] = self.clock.now
            self.pool.hold([block])
            self.held.append(block)

    def release(self, number: int) -> None:
        if self.held:
            block = self.held.pop(number % len(self.held))
            self.pool.release([block])
            if block not in self.held:
                self.last_use |= {name: self.clock.now for name, other in self.block_of.items() if other == block}


@given(st.lists(st.tuples(st.sampled_from(["compute", "find", "release", "wait"]), st.integers(0, 9)), max_size=80))
@example([("compute", 1), ("release", 0), *[("wait", 5)] * 2, ("compute", 1), ("find", 1)])
@example([("compute", 1), ("release", 0), *[("wait", 5), ("compute", 1)] * 2, ("wait", 4), ("find", 1)])
def test_a_block_is_found_exactly_while_it_is_in_use_and_for_its_time_after_that(actions):
    expected = Expected()
    for action, number in actions:
        if action == "wait":
            expected.clock.now += number
        elif action == "release":
            expected.release(number)
        elif action == "compute":
            expected.compute(key(number))
        else:
            expected.use(key(number))
        expected.pool.check([[block] for block in expected.held])


# --- the second tier --------------------------------------------------------------------------------------------------


def test_a_cell_keeps_the_time_of_the_block_that_it_was_saved_from_unless_the_next_plan_loads_from_it(clock):
    tier = SecondTierIndex(2, TimeToLive(TTL, clock))
    clock.now = 8.0
    tier.offer(key(1), 0, last_use=3.0)
    clock.now = 12.5
    assert tier.use(key(1))
    clock.now += TTL
    assert not tier.use(key(1))
    tier.check()
    assert tier.take_moves().saves == [], "what was not saved yet need not be"
    tier.offer(key(2), 0, last_use=clock.now)
    tier.take_moves()
    tier.pin([key(2)])
    clock.now += 2 * TTL
    assert tier.use(key(2))


# --- what requests get of it ------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0, TTL - 1, TTL])), min_size=1, max_size=12),
    st.sampled_from([{}, {"num_blocks": 12, "num_cpu_blocks": 6}, {"num_blocks": 12, "num_cpu_blocks": 60}]),
)
@settings(max_examples=40)
def test_answers_are_the_same_whatever_has_expired_and_what_is_over_is_never_found(visits, options):
    harness, last_visit = Harness(prefix_cache_ttl=TTL, **options), {}
    for request_id, (number, passed) in enumerate(visits):
        harness.now += passed
        found = harness.visit(request_id, [number + 1, *range(100 * number, 100 * number + 39)])
        if harness.now - last_visit.get(number, -TTL) >= TTL:
            assert found == 0
        elif options.get("num_cpu_blocks", 64) > 48:
            assert found == FULL
        last_visit[number] = harness.now
