"""The choice of a tree: prefixes are found again, load stays even, and nothing grows without bound.

Trees are simulated here: each has the KV memory of a real one, and works off what it is given at the same speed.
"""

import heapq
import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.frontend.replicas import choice as room
from penstock.frontend.replicas.choice import Choice
from penstock.frontend.replicas.prefix_keys import key_ends, prefix_keys
from penstock.protocol.media import Medium
from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column

BLOCK = 32
ENDS = key_ends(BLOCK, 1 << 16)


def prompt(tokens: Sequence[int], media: Sequence[Medium] = (), **params: object) -> Prompt:
    return Prompt(0, column(tokens), SamplingParams(**params), 0, 0.0, media=list(media))


class BlockMemory:
    """The KV memory of a tree: its prompts' blocks, the least recently used of which is evicted, ends first."""

    def __init__(self, num_tokens: int) -> None:
        self.capacity = num_tokens // BLOCK
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def take(self, tokens: list[int]) -> int:
        """The tokens of a prompt that are found; all of them are there afterwards."""
        key, keys = 0, []
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = hash((key, *tokens[start : start + BLOCK]))
            keys.append(key)
        found = next((index for index, key in enumerate(keys) if key not in self.blocks), len(keys))
        for key in reversed(keys):
            self.blocks[key] = None
            self.blocks.move_to_end(key)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return found * BLOCK


class Trees:
    """Trees that compute one token of work in a unit of time, each what it was given in that order."""

    def __init__(self, count: int, tokens_of_each: int) -> None:
        self.choice = Choice(count)
        self.tokens_of_each = tokens_of_each
        self.whole = BlockMemory(count * tokens_of_each)
        self.memories = [BlockMemory(tokens_of_each) for _ in range(count)]
        self.free_at = [0.0] * count
        self.done = [0.0] * count
        self.running: list[tuple[float, int, room.Work, int]] = []
        self.now = 0.0
        self.hits = self.hits_of_whole = 0
        for tree in range(count):
            self.choice.open(tree, tokens_of_each)

    def ask(self, tokens: list[int], answer: int) -> None:
        work = self.choice.give(prefix_keys(prompt(tokens), ENDS), ENDS, len(tokens), 1 << 12)
        assert work is not None
        found = self.memories[work.tree].take(tokens)
        self.hits, self.hits_of_whole = self.hits + found, self.hits_of_whole + self.whole.take(tokens)
        cost = len(tokens) - found + answer
        self.done[work.tree] += cost
        self.free_at[work.tree] = max(self.free_at[work.tree], self.now) + cost
        heapq.heappush(self.running, (self.free_at[work.tree], len(self.running), work, answer))

    def wait(self) -> None:
        """Let time pass until one more request has ended."""
        self.now, _, work, answer = heapq.heappop(self.running)
        self.choice.end(work, answer)

    def die(self, tree: int) -> None:
        """It starts again at once, with nothing to do and nothing in its memory."""
        self.choice.close(tree)
        self.choice.open(tree, self.tokens_of_each)
        self.memories[tree] = BlockMemory(self.tokens_of_each)
        self.free_at[tree] = self.now


def traffic(seed: int, count: int, num_prefixes: int, skew: float) -> Iterator[tuple[list[int], int]]:
    chosen = random.Random(seed)
    prefixes = [[chosen.randrange(1 << 30) for _ in range(chosen.randrange(100, 1500))] for _ in range(num_prefixes)]
    weights = [1 / (1 + rank) ** skew for rank in range(num_prefixes)]
    for _ in range(count):
        [prefix] = chosen.choices(prefixes, weights)
        own = [chosen.randrange(1 << 30) for _ in range(chosen.randrange(20, 200))]
        yield prefix + own, chosen.randrange(20, 300)


def test_prefixes_are_found_as_in_one_memory_and_each_tree_has_as_much_to_do():
    trees = Trees(16, 40_000)
    for tokens, answer in traffic(16, 1600, 40, 1.0):
        while len(trees.running) >= 256:
            trees.wait()
        trees.ask(tokens, answer)
    mean = sum(trees.done) / 16
    assert trees.hits >= 0.95 * trees.hits_of_whole
    assert 0.9 * mean <= min(trees.done) and max(trees.done) <= 1.1 * mean


def test_what_arrives_together_with_one_prefix_goes_to_one_tree_and_to_another_when_that_has_too_much_to_do():
    trees = Trees(4, 40_000)
    shared = list(range(1000))
    for number in range(200):
        trees.ask([*shared, *range(number, number + 40)], 10)
    given = [sum(work.tree == tree for *_, work, _ in trees.running) for tree in range(4)]
    first = next(work.tree for *_, work, _ in sorted(trees.running, key=lambda each: each[1]))
    assert {work.tree for _, order, work, _ in trees.running if order < 5} == {first}
    assert min(given) > 0 and sum(memory.take(shared) > 0 for memory in trees.memories) == 4


def test_without_load_new_prefixes_go_round_and_known_ones_stay():
    trees = Trees(3, 40_000)
    prefixes = [[number] * 320 for number in range(6)]
    for _ in range(4):
        for tokens in prefixes:
            trees.ask(tokens, 10)
            trees.wait()
    assert sorted(len(memory.blocks) for memory in trees.memories) == [20, 20, 20]
    assert trees.hits == trees.hits_of_whole


def test_a_prefix_is_another_with_another_salt_adapter_token_or_picture():
    def picture(digest: bytes, *spans: int) -> Medium:
        return Medium("image", digest, b"", (1, 1, 1), column(spans), 1)

    tokens = list(range(8 * BLOCK))
    plain = prefix_keys(prompt(tokens), ENDS)
    assert len(plain) == 8 and prefix_keys(prompt([*tokens, 1, 2]), ENDS) == plain
    others = (
        prompt(tokens, cache_salt="a"), prompt(tokens, cache_salt="b"), prompt(tokens, lora_name="a"),
        prompt([7, *tokens[1:]]), prompt(tokens, [picture(b"a", 3, 40)]), prompt(tokens, [picture(b"b", 3, 40)]),
    )  # fmt: skip
    assert len({keys[0] for keys in (plain, *(prefix_keys(each, ENDS) for each in others))}) == 7
    # What comes before a picture is shared with those that have another one there.
    first, second = (
        prefix_keys(prompt(tokens, [picture(digest, 4 * BLOCK + 1, BLOCK)]), ENDS) for digest in (b"a", b"b")
    )
    assert first[:4] == second[:4] == plain[:4] and set(first[4:]).isdisjoint(second[4:])


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(1, 70), st.integers(1, 4000))
def test_whatever_comes_and_goes_the_index_agrees_with_itself_and_stays_small(chosen, count, capacity):
    choice = Choice(count)
    works: list[room.Work] = []
    opened: set[int] = set()
    for _ in range(80):
        action = chosen.choice(("give", "give", "give", "end", "open", "close"))
        tree = chosen.randrange(count)
        if action == "give":
            tokens = [chosen.randrange(2)] * chosen.randrange(400) + [chosen.randrange(9)] * chosen.randrange(90)
            work = choice.give(prefix_keys(prompt(tokens), ENDS), ENDS, len(tokens), chosen.randrange(99), 2)
            assert (work is None) == (not opened) and (work is None or work.tree in opened)
            works += [] if work is None else [work]
        elif action == "end" and works:
            choice.end(works.pop(chosen.randrange(len(works))), chosen.choice((None, 5)))
        elif action == "open" and tree not in opened:
            choice.open(tree, capacity)
            opened.add(tree)
        elif action == "close":
            choice.close(tree)
            opened.discard(tree)
        check(choice, opened)
    for work in works:
        choice.end(work)
    assert all(choice.load[tree] == pytest.approx(0, abs=1e-6) for tree in opened)


def check(choice: Choice, opened: set[int]) -> None:
    holders: dict[int, int] = {}
    for number, tree in enumerate(choice._trees):
        assert tree.num_known == sum(tree.known.values()) <= tree.capacity
        assert number in opened or not tree.known
        for key in tree.known:
            holders[key] = holders.get(key, 0) | 1 << number
    assert holders == choice._holders


def test_the_index_has_a_bound_however_large_the_memories_are(monkeypatch):
    monkeypatch.setattr(room, "_MOST_KEYS", 400)
    choice = Choice(4)
    for tree in range(4):
        choice.open(tree, 1 << 40)
    for number in range(200):
        tokens = [number] * 32 * 7
        choice.give(prefix_keys(prompt(tokens), ENDS), ENDS, len(tokens), 10)
    assert len(choice._holders) <= 400 and all(len(tree.known) <= 100 for tree in choice._trees)


def test_a_tree_that_died_is_filled_like_the_others_and_its_earlier_work_counts_no_more():
    trees = Trees(8, 40_000)
    chosen = random.Random(3)
    for tokens, answer in traffic(9, 900, 40, 0.8):
        while len(trees.running) >= 128:
            trees.wait()
        if chosen.random() < 0.01:
            trees.die(chosen.randrange(8))
        trees.ask(tokens, answer)
    load = trees.choice.load
    assert max(load) <= 1.5 * sum(load) / 8 and trees.hits >= 0.8 * trees.hits_of_whole
