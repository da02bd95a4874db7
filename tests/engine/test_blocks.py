"""The pool of KV blocks: who holds what, what is reused first; and their keys, equal exactly where the content is."""

from itertools import combinations

import pytest
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.memory.blocks import BlockPool
from penstock.engine.memory.keys import next_key, root_key
from penstock.protocol.messages import column


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_a_freed_block_stays_findable_until_it_is_reused():
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.name(block, key(1))
    pool.release([block])
    assert pool.find(key(1)) == block
    pool.allocate(2)
    assert pool.find(key(1)) is None


def test_a_chain_is_evicted_from_its_tail():
    pool = BlockPool(3)
    table = pool.allocate(3)
    for number, block in enumerate(table):
        pool.name(block, key(number))
    pool.release(table)
    assert pool.free_blocks() == table[::-1]


def test_the_least_recently_used_chain_is_evicted_first():
    pool = BlockPool(4)
    old, new = pool.allocate(2), pool.allocate(2)
    for number, block in enumerate(old + new):
        pool.name(block, key(number))
    pool.release(old)
    pool.release(new)
    pool.hold(old)
    pool.release(old)
    assert set(pool.allocate(2)) == set(new)


def test_what_nobody_can_find_is_reused_before_what_can_be_found():
    pool = BlockPool(2)
    findable, nameless = pool.allocate(1), pool.allocate(1)
    pool.name(findable[0], key(1))
    pool.release(findable)
    pool.release(nameless)
    assert pool.allocate(1) == nameless


def test_a_found_block_that_is_free_leaves_the_free_list_when_held():
    pool = BlockPool(2)
    table = pool.allocate(1)
    pool.name(table[0], key(1))
    pool.release(table)
    pool.hold(table)
    assert pool.num_free == 1
    assert pool.allocate(1) != table


def test_the_first_block_of_a_key_keeps_it():
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.name(first, key(1))
    pool.name(second, key(1))
    pool.check([[first, second]])
    assert pool.find(key(1)) == first


def test_more_blocks_than_are_free_cannot_be_had():
    with pytest.raises(RuntimeError, match=r"3 blocks were asked for, and 2 of 2 are free"):
        BlockPool(2).allocate(3)


@for_each("tables", [[[0, 0]], [[0], [0]], [[]], [[0, 1]]])
def test_check_notices_tables_that_are_not_what_the_pool_counted(tables):
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(RuntimeError):
        pool.check(tables)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["allocate", "share", "release", "name"]), st.integers(0, 30)), max_size=60))
def test_blocks_are_conserved_whatever_happens(actions):
    pool = BlockPool(8)
    tables: list[list[int]] = []
    for action, number in actions:
        if action == "allocate" and number % 5 <= pool.num_free:
            tables.append(pool.allocate(number % 5))
        elif action == "share" and (block := pool.find(key(number))) is not None:
            pool.hold([block])
            tables.append([block])
        elif action == "release" and tables:
            pool.release(tables.pop(number % len(tables)))
        elif action == "name" and tables and (table := tables[number % len(tables)]):
            pool.name(table[0], key(number))
        pool.check(tables)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_depends_on_every_token_before_it():
    root = root_key(None, None, None)
    tokens = column([1, 2, 3, 4])
    assert next_key(next_key(root, tokens), tokens) != next_key(root, tokens)
    assert next_key(next_key(root, column([1, 2])), tokens) != next_key(next_key(root, column([1, 3])), tokens)


def test_whoever_differs_in_salt_adapter_or_privacy_shares_nothing():
    roots = [
        root_key(None, None, None),
        root_key("", None, None),
        root_key("7", None, None),
        root_key(None, "7", None),
        root_key(None, None, 7),
    ]
    assert all(one != other for one, other in combinations(roots, 2))


def test_the_same_tokens_have_the_same_key_in_every_process():
    key = next_key(root_key(None, None, None), column([1, 2, 3, 4]))
    assert key.hex() == "38ad0ddf3cc80ed3a709f552fac592217e8cae063f9d36e3444cda87b54cf5ef"
