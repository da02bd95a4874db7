"""How memory is shared out among groups of layers that see windows or keep states: one request always has what it
needs, and a window no more than that.
"""

from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.layer_groups import CHECKPOINT_EVERY
from penstock.worker.start.memory.shares import STATES_A_SEQUENCE, GroupSize, Shares

KIB = 1 << 10
KINDS = st.one_of(
    st.builds(GroupSize, st.just("window"), st.just(4), st.integers(1, 64 * KIB), st.integers(1, 3000)),
    st.builds(GroupSize, st.just("state"), st.just(4), st.integers(1, 9000 * KIB)),
)
FULL = st.builds(GroupSize, st.just("full"), st.just(4), st.integers(1, 64 * KIB))
SHARES = st.builds(
    lambda first, others, block_size, num_seqs, chunk: Shares([first, *others], block_size, num_seqs, chunk),
    FULL,
    st.lists(st.one_of(FULL, KINDS), max_size=3),
    st.sampled_from([16, 32, 64, 128]),
    st.integers(1, 64),
    st.sampled_from([16, 512, 8192]),
)
LENGTHS = st.integers(1, 40_000)


@given(SHARES, LENGTHS)
def test_the_bytes_that_a_request_needs_hold_it_and_less_don_t(shares, length):
    need = shares.needed_bytes(length)
    assert shares.longest(need, length) == length
    assert shares.of_bytes(need, length) == shares.needed(length)
    assert shares.longest(need - 1, length) < length


@given(SHARES, LENGTHS, st.integers(0, 1 << 34))
def test_each_group_gets_what_a_request_needs_and_an_even_part_of_the_rest_while_it_is_of_use(shares, length, more):
    num_bytes, needed = shares.needed_bytes(length) + more, shares.needed(length)
    counts = shares.of_bytes(num_bytes, length)
    full, others = (
        sum(group.block_bytes for group in shares.groups if (group.kind == "full") == is_full)
        for is_full in (True, False)
    )
    # A block more of the longest group lets each state group keep one state more, and each window a block.
    assert 0 <= num_bytes - shares.bytes_of(counts) < full + others
    first, rest = counts[0], (counts[0] - needed[0]) * full
    for group, count, least in zip(shares.groups, counts, needed, strict=True):
        assert count >= least
        own = (count - least) * group.block_bytes
        has_enough = group.kind == "full" or count >= shares._most(group, first)
        assert has_enough or own + group.block_bytes + full > rest
        if group.kind == "full":
            assert count == first
            continue
        assert own < rest + group.block_bytes + full
        states = STATES_A_SEQUENCE * shares.num_seqs + -(-first * shares.block_size // CHECKPOINT_EVERY)
        assert count <= (first if group.kind == "window" else states)


@given(SHARES, LENGTHS, st.integers(1, 3000))
def test_a_number_of_blocks_is_that_of_the_longest_group(shares, wanted, num_blocks):
    length = shares.longest_in_first(num_blocks, wanted)
    assert length == min(wanted, num_blocks * shares.block_size)
    assert shares.of_first_group(num_blocks, length)[0] == num_blocks


def test_a_window_needs_what_its_tokens_and_one_step_s_chunk_take():
    window = GroupSize("window", 22, 1, 512)
    shares = Shares([GroupSize("full", 4, 1), window], block_size=32, num_seqs=1, chunk=256)
    assert shares.needed(32_768) == [1024, -(-(511 + 256 - 1) // 32) + 1]
    assert shares.needed(320) == [10, 10], "of a short request no more than its tokens take"


@for_each("chunk", [1, 7, 32, 100])
@for_each("window", [1, 16, 33, 64])
def test_no_chunk_at_any_position_reads_or_writes_more_blocks_than_a_window_is_given(window, chunk):
    size, length = 16, 700
    [needed] = Shares([GroupSize("window", 1, 1, window)], size, 1, chunk).needed(length)
    spans = []
    for start in range(length - chunk + 1):
        first = max(0, start - window + 1) // size
        spans.append((start + chunk - 1) // size - first + 1)
    assert max(spans) == needed
