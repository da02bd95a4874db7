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


def test_nameless_blocks_are_reused_first_then_the_least_recently_used_chain_from_its_tail():
    pool = BlockPool(5)
    old, new, nameless = pool.allocate(2), pool.allocate(2), pool.allocate(1)
    for number, block in enumerate(old + new):
        pool.name(block, key(number))
    for table in (old, new, nameless):
        pool.release(table)
    pool.hold(old)
    pool.release(old)
    assert pool.free_blocks() == [*nameless, *new[::-1], *old[::-1]]
    with pytest.raises(RuntimeError, match=r"6 blocks were asked for, and 5 of 5 are free"):
        pool.allocate(6)


def test_the_first_block_of_a_key_keeps_it():
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.name(first, key(1))
    pool.name(second, key(1))
    pool.check([[first, second]])
    assert pool.find(key(1)) == first


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


def test_a_key_depends_on_every_token_before_it_and_on_salt_adapter_and_privacy_and_on_no_process():
    root = root_key(None, None, None)
    tokens = column([1, 2, 3, 4])
    assert next_key(root, tokens).hex() == "38ad0ddf3cc80ed3a709f552fac592217e8cae063f9d36e3444cda87b54cf5ef"
    assert next_key(next_key(root, tokens), tokens) != next_key(root, tokens)
    assert next_key(next_key(root, column([1, 2])), tokens) != next_key(next_key(root, column([1, 3])), tokens)
    others = [root_key("", None, None), root_key("7", None, None), root_key(None, "7", None), root_key(None, None, 7)]
    assert all(one != other for one, other in combinations([root, *others], 2))
