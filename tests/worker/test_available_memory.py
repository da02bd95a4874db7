"""Memory that a worker may plan with: what is free in its control group, less what others have set aside; memory that
is taken only when it is touched; and how memory is shared out among groups of layers that see windows or keep states,
so that one request always has what it needs, and a window no more than that.
"""

import os
import subprocess
import sys
from threading import Thread

import numpy
import pytest
from builders.cases import for_each
from builders.watching import wait_until
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.arrays import BFLOAT16, FLOAT32, address, fresh_zeros
from penstock.protocol.layer_groups import CHECKPOINT_EVERY
from penstock.worker.kv.host_memory import BackgroundTouch
from penstock.worker.start.memory.available import Reservation, available_memory
from penstock.worker.start.memory.shares import STATES_A_SEQUENCE, GroupSize, Shares

GIB = 1 << 30


def machine(folder, group: str, files: dict[str, int | str], available: int = 8 * GIB):
    """A /proc and a /sys/fs/cgroup with these files; the kernel's own estimate is `available`."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable:   {available // 1024} kB\n")
    (folder / "proc" / "self" / "cgroup").write_text(group)
    for name, content in files.items():
        path = folder / "cgroups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return available_memory(folder / "proc", folder / "cgroups")


OLD_GROUP = {
    "memory/x/memory.limit_in_bytes": 2 * GIB, "memory/x/memory.usage_in_bytes": GIB,
    "memory/x/memory.stat": f"inactive_file 9\ntotal_inactive_file {GIB // 4}\ntotal_active_file {GIB // 2}",
}  # fmt: skip


def limited(where: str, limit: int | str, used: int, file: int = 0) -> dict[str, int | str]:
    files = {
        "memory.max": limit,
        "memory.current": used,
        "memory.stat": f"anon 1\ninactive_file {file}\nactive_file {file}",
    }
    return {f"{where}{name}": content for name, content in files.items()}


@for_each("group, files, left", [
    ("0::/\n", {}, 8 * GIB),
    ("0::/\n", limited("", "max", 0), 8 * GIB),
    ("0::/\n", limited("", 4 * GIB, GIB), 3 * GIB),
    ("0::/\n", limited("", 4 * GIB, GIB, file=GIB // 4), 3 * GIB + GIB // 2),
    ("0::/a/b\n", {**limited("a/b/", "max", 0), **limited("a/", 2 * GIB, GIB)}, GIB),
    ("0::/the/host's/path\n", limited("", 4 * GIB, GIB), 3 * GIB),
    ("0::/\n", limited("", 100 * GIB, GIB), 8 * GIB),
    ("3:cpu:/x\n2:memory,hugetlb:/x\n", OLD_GROUP, GIB * 7 // 4),
])  # fmt: skip
def test_limits_of_control_groups_count(tmp_path, group, files, left):
    assert machine(tmp_path, group, files) == left


def test_this_machine_has_memory():
    assert 0 < available_memory() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


# --- what others have set aside --------------------------------------------------------------------------------------


@pytest.fixture
def trees(tmp_path):
    """The folders of two trees of one user."""
    folders = [tmp_path / "t0", tmp_path / "t1"]
    for folder in folders:
        folder.mkdir()
    return folders


def set_aside(by: Reservation) -> int:
    with by.turn() as others:
        return others


def test_what_one_sets_aside_the_others_see(trees):
    first, second, rank_1 = Reservation(trees[0], 0), Reservation(trees[1], 0), Reservation(trees[1], 1)
    first.hold(5 * GIB)
    second.hold(GIB)
    assert [set_aside(by) for by in (first, second, rank_1)] == [GIB, 5 * GIB, 6 * GIB]
    first.hold(3)
    assert set_aside(rank_1) == GIB + 3
    second.release()
    assert set_aside(rank_1) == 3


def test_a_note_dies_with_its_process(trees):
    code = (
        "import os, sys; from pathlib import Path; from penstock.worker.start.memory.available import Reservation\n"
        "note = Reservation(Path(sys.argv[1]), 0); note.hold(7)\n"
        "print('held', flush=True); sys.stdin.read(); os._exit(0)"
    )
    command, environment = [sys.executable, "-c", code, str(trees[0])], {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
    )  # fmt: skip
    mine = Reservation(trees[1], 0)
    assert child.stdout.readline() == b"held\n"
    assert set_aside(mine) == 7
    child.stdin.close()
    child.wait(timeout=120)
    child.stdout.close()
    assert set_aside(mine) == 0


def test_the_folder_of_a_tree_that_ends_meanwhile_is_passed_over(trees, monkeypatch):
    ending, mine, scandir = Reservation(trees[0], 0), Reservation(trees[1], 0), os.scandir
    ending.hold(GIB)

    def removed_before(path):
        if str(path) == str(trees[0]):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed_before)
    assert set_aside(mine) == 0


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@for_each("dtype", [FLOAT32, BFLOAT16])
def test_fresh_memory_is_zero_and_not_taken_yet(dtype):
    before = resident()
    memory = fresh_zeros((3, 1 << 26), dtype)
    assert resident() - before < 8 << 20
    assert memory[2, -5:].tolist() == [0] * 5 and address(memory) % 4096 == 0


def test_touching_takes_the_memory_and_changes_nothing_in_it():
    memory, left = fresh_zeros((40, 1 << 20), numpy.dtype(numpy.uint8)), []
    memory[5, 5] = 1
    before = resident()
    touch = BackgroundTouch([memory], left.append)
    touch.start()
    touch.wait()
    if not left:
        pytest.skip("this kernel cannot populate pages")
    assert left[-1] == 0 and sorted(left, reverse=True) == left
    assert resident() - before > 30 << 20
    assert int(memory.sum()) == 1


def test_touching_ends_when_it_is_stopped():
    memory, seen = fresh_zeros((20 << 20,), numpy.dtype(numpy.uint8)), []

    def stop_it(left: int) -> None:
        """From another thread, in whatever time that takes."""
        if not seen:
            stopping.start()
            wait_until(touch._is_stopped.is_set, "the touch is told to stop")
        seen.append(left)

    touch = BackgroundTouch([memory], stop_it)
    stopping = Thread(target=touch.stop)
    touch.start()
    touch.wait()
    if not seen:
        pytest.skip("this kernel cannot populate pages")
    stopping.join()
    assert len(seen) == 1 and seen[0] > 0


# --- shares of groups of layers ---------------------------------------------------------------------------------------


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
