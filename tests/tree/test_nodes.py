"""Ranks of one tree on several machines: they answer as on one; whatever ends ends all, with the cause on both sides;
and who has no key, or doesn't fit, is refused.

Machines are addresses of the loopback network. The quick test has the stand-in worker, which computes nothing.
"""

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from builders.nodes import (
    FIRST,
    KEY,
    SECOND,
    THIRD,
    OtherMachine,
    Wire,
    free_port,
    listeners,
    machines,
    options_of,
    wait_for_ranks,
)
from builders.starts import STAND_IN
from builders.tiny_model import tiny_model
from builders.watching import BOUND_SECONDS, assert_gone, runtime_folders, tree_processes, wait_until

from penstock import LLM, EngineDeadError, SamplingParams
from penstock.protocol.ranks.node_sockets import drop_packets

LONG = pytest.mark.long
ENDLESS = SamplingParams(max_tokens=900, ignore_eos=True)
ANSWER = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)
SLOW = "worker.step=delay:0.05"
HEADS = {"num_attention_heads": 12, "num_key_value_heads": 12, "hidden_size": 384, "head_dim": 32}
GARBAGE = (b"\xff\0\0\0\0\0\0\0\x01\x7f\x03", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 16)


@pytest.fixture
def port(monkeypatch) -> int:
    monkeypatch.setenv("PENSTOCK_NODE_KEY", KEY)
    monkeypatch.setenv("PENSTOCK_HOST_IP", FIRST)
    return free_port()


@pytest.fixture
def machine() -> Iterator[Callable[..., OtherMachine]]:
    """Starts another machine, which has ended with the test."""
    with ExitStack() as started:
        yield lambda *given, **named: started.enter_context(closing(OtherMachine(*given, **named)))


def at_work(llm: LLM) -> "Future[Any]":
    """Somebody waits for an endless answer."""
    return in_thread(lambda: llm.generate([[1, 2, 3]] * 4, ENDLESS, use_tqdm=False))


def in_thread(call: Callable[[], Any]) -> "Future[Any]":
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def error_of(caller: "Future[Any]") -> str:
    with pytest.raises(EngineDeadError) as died:
        caller.result(BOUND_SECONDS)
    return str(died.value)


def test_a_tree_over_two_machines_answers_and_a_rank_that_dies_on_one_ends_both(model_folder, port, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    before, listening = runtime_folders(), listeners({os.getpid()})
    other = OtherMachine(model_folder, port)
    with machines(model_folder, other, port=port, **STAND_IN) as llm:
        own = tree_processes(llm)
        assert sorted(own) == ["detokenizer", "engine", "link", "worker 0"]
        [rank] = wait_for_ranks(other)
        assert len(llm.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)) == 1
        with socket.socket() as probe, suppress(PermissionError), socket.socket() as stranger:
            drop_packets(probe)  # where the kernel allows it, nobody else is let in
            stranger.settimeout(0.2)
            with pytest.raises(TimeoutError):
                stranger.connect((FIRST, port))
        caller = at_work(llm)
        os.kill(rank, signal.SIGKILL)
        cause = error_of(caller)
        assert "node 1" in cause and "worker 1" in cause and "SIGKILL" in cause
        assert_gone(own.values())
        status, said = other.ended()
        assert status == 1 and "The tree has ended" in said and "SIGKILL" in said
        assert listeners({os.getpid(), *own.values()}) == listening and runtime_folders() <= before


@LONG
@pytest.mark.parametrize("nnodes, per_node, options", [
    (2, 2, {}), (3, 1, {"quantization": "int8"}), (2, 1, {"deterministic": "portable"}),
])  # fmt: skip
def test_answers_have_the_bits_of_as_many_ranks_on_one_machine(tmp_path, port, nnodes, per_node, options):
    model = tiny_model(tmp_path / "model", "qwen3", **HEADS)
    size = nnodes * per_node
    options = {"tensor_parallel_size": size, "max_model_len": 256, "kv_cache_memory": "32MiB", **options}
    prompts = [[number * place % 200 + 1 for number in range(1, 8 * place)] for place in range(1, 9)]

    def answers(llm: LLM) -> list[object]:
        sampled = SamplingParams(temperature=1.0, seed=3, max_tokens=24, ignore_eos=True)
        found = [*llm.generate(prompts, ANSWER, use_tqdm=False), *llm.generate(prompts, sampled, use_tqdm=False)]
        return [(each.outputs.token_ids, each.outputs.logprobs) for each in found]

    with LLM(model, quiet=True, **options) as llm:
        expected = answers(llm)
    others = [
        OtherMachine(model, port, rank=rank, nnodes=nnodes, address=address)
        for rank, address in zip(range(1, nnodes), (SECOND, THIRD), strict=False)
    ]
    with machines(model, *others, port=port, **options) as llm:
        assert answers(llm) == expected
        ranks = {pid for other in others for pid in wait_for_ranks(other, per_node)}
        assert len(ranks) == size - per_node
        # Nobody listens but node 0's link, at which the kernel drops whatever comes.
        assert {each.port for each in listeners({*ranks, *tree_processes(llm).values()})} <= {port}
    for other in others:
        assert other.ended()[0] == 0


KILL, STOP = signal.SIGKILL, signal.SIGSTOP
ENDED = "has ended|closed the connection"
# Who gets which signal, and what the caller and the other machine are told then.
SIGNALS = [
    ("worker 0", KILL, "worker 0", ENDED), ("engine", KILL, "engine", ENDED), ("link", KILL, "link", ENDED),
    ("rank", KILL, "worker 1", ENDED), ("command", KILL, "Node 1", ""), ("link", STOP, "link process", ""),
    ("rank", STOP, r"worker 1 .*\(pid \d+ on node 1 \(.*\)\) has been stopped \(SIGSTOP\).*log on node 1 \(", ""),
    ("command", STOP, "Node 1", ""),
    ("command", signal.SIGTERM, r"It was ended there \(SystemExit\)", ""),
    ("command", signal.SIGINT, r"It was ended there \(KeyboardInterrupt\)", ""),
]  # fmt: skip


@LONG
@pytest.mark.parametrize("who, number, cause, there", SIGNALS)
def test_whoever_dies_or_is_stopped_both_machines_end_with_the_cause(
    model_folder, port, monkeypatch, who, number, cause, there
):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    other = OtherMachine(model_folder, port)
    with machines(model_folder, other, port=port, watchdog_timeout=4, **STAND_IN) as llm:
        own = tree_processes(llm)
        [rank] = wait_for_ranks(other)
        pid = {**own, "rank": rank, "command": other.process.pid}[who]
        caller = at_work(llm)
        os.kill(pid, number)
        told = error_of(caller)
        assert_gone(own.values())
        if number == STOP and who == "command":
            os.kill(pid, signal.SIGCONT)  # else it can't end
        _, said = other.ended()
    assert re.search(cause, told) and re.search(there, said), (told, said)


@LONG
@pytest.mark.parametrize("who", ["rank", "command"])
def test_of_three_machines_all_name_the_one_that_was_lost(tmp_path, port, monkeypatch, who):
    """The ranks of the others notice first, and know nothing."""
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    model_folder = tiny_model(tmp_path / "model", "qwen3", **HEADS)
    model = {"max_model_len": 1024, "kv_cache_memory": "32MiB", "tensor_parallel_size": 6}
    addresses = ((1, SECOND), (2, THIRD))
    others = [OtherMachine(model_folder, port, rank=rank, nnodes=3, address=where) for rank, where in addresses]
    with machines(model_folder, *others, port=port, **model) as llm:
        caller = at_work(llm)
        ranks = wait_for_ranks(others[0], 2)
        os.kill(ranks[1] if who == "rank" else others[0].process.pid, signal.SIGKILL)
        cause = error_of(caller)
        words = "worker 3" if who == "rank" else "Node 1"
        assert words in cause, cause
        status, said = others[1].ended()
        assert status == 1 and words in said, said


@LONG
def test_the_death_of_the_front_end_ends_the_other_machine(model_folder, machine, port, start_script):
    other = machine(model_folder, port)
    front = start_script(
        f"from penstock import LLM\nllm = LLM(MODEL, **{options_of(port, **STAND_IN)!r})\n"
        "print('ready', flush=True)\nimport time\ntime.sleep(600)"
    )
    assert front.stdout.readline() == "ready\n", front.stderr.read()
    wait_for_ranks(other)
    front.kill()
    status, said = other.ended()
    assert status == 1 and "Node 0 has closed the connection" in said


@LONG
def test_a_cut_network_ends_both_machines_with_the_cause(model_folder, port, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    with closing(Wire(port)) as wire:
        other = OtherMachine(model_folder, wire.port)
        with machines(model_folder, other, port=port, max_model_len=1024, kv_cache_memory="32MiB") as llm:
            own = tree_processes(llm)
            wait_for_ranks(other)
            assert len(llm.generate([[1, 2]], SamplingParams(max_tokens=9, ignore_eos=True), use_tqdm=False)) == 1
            caller = at_work(llm)
            wire.is_cut = True
            cause = error_of(caller)
            status, said = other.ended()
            assert_gone(own.values())
    assert "Node 1" in cause and "not been heard of" in cause
    assert status == 1 and "Node 0 has not been heard of" in said


@LONG
def test_a_stopped_link_is_told_as_the_cause_although_a_rank_has_lost_the_other(model_folder, port, monkeypatch):
    """Rank 0 notices first, when the other machine has given up this one."""
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    other = OtherMachine(model_folder, port)
    with machines(model_folder, other, port=port, max_model_len=1024, kv_cache_memory="32MiB") as llm:
        wait_for_ranks(other)
        caller = at_work(llm)
        os.kill(tree_processes(llm)["link"], STOP)
        assert re.search(r"link process \(pid \d+\) has been stopped", cause := error_of(caller)), cause
        assert "Node 0 has not been heard of" in other.ended()[1]


@LONG
@pytest.mark.parametrize("place", [100, 300, 640, 700])  # of the greeting, the handshake and the request to join
def test_a_machine_whose_request_is_damaged_on_the_way_asks_again(model_folder, port, place):
    with closing(Wire(port)) as wire:
        wire.flipped = place
        other = OtherMachine(model_folder, wire.port)
        with machines(model_folder, other, port=port, **STAND_IN) as llm:
            assert wire.flipped is None
            assert len(llm.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)) == 1


# --- who is let in ---------------------------------------------------------------------------------------------------


@LONG
def test_who_does_not_fit_is_refused_in_a_sentence_and_disturbs_nobody(model_folder, machine, port, tmp_path):
    another = tiny_model(tmp_path / "another", "llama")
    refused = {
        "has another key": machine(model_folder, port, key="f" * 64, nnodes=3),
        "nnodes=2, and node 0 nnodes=3": machine(model_folder, port),
        "its files of": machine(another, port, nnodes=3),
        "tensor_parallel_size=6, and node 0": machine(model_folder, port, "--tensor-parallel-size", "6", nnodes=3),
        "it was told max_num_seqs=5": machine(model_folder, port, "--max-num-seqs", "5", nnodes=3),
    }
    starting = in_thread(lambda: LLM(model_folder, **options_of(port, 3, **STAND_IN)))
    for words, other in refused.items():
        status, said = other.ended()
        assert status == 1 and words in said and "Traceback" not in said, said
    first = machine(model_folder, port, nnodes=3)
    wait_for_ranks(first)
    again = machine(model_folder, port, nnodes=3, address=THIRD)
    status, said = again.ended()
    assert status == 1 and "node_rank=1 has joined already, from " in said
    last = machine(model_folder, port, nnodes=3, rank=2, address=THIRD)
    llm = starting.result(BOUND_SECONDS)
    assert len(llm.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)) == 1
    llm.close()
    assert first.ended()[0] == last.ended()[0] == 0


@LONG
def test_strangers_floods_and_garbage_change_nothing(model_folder, machine, port):
    """Before the other machine has joined, when the port is open, and after."""
    starting = in_thread(lambda: LLM(model_folder, **options_of(port, **STAND_IN)))
    wait_until(lambda: _can_connect(port), "the port is open")
    strangers = [socket.create_connection((FIRST, port)) for _ in range(500)]
    for number, stranger in enumerate(strangers):
        stranger.setblocking(False)
        with suppress(OSError):
            stranger.send(GARBAGE[number % len(GARBAGE)])
    other = machine(model_folder, port)
    llm = starting.result(BOUND_SECONDS)
    try:
        assert len(llm.generate([[1, 2]], SamplingParams(max_tokens=9, ignore_eos=True), use_tqdm=False)) == 1
    finally:
        llm.close()
        for stranger in strangers:
            stranger.close()
    assert other.ended()[0] == 0


def _can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((FIRST, port)) == 0
