"""How machines join a tree: one that doesn't fit is told why, in a sentence, and one that fails says so."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import msgspec
import pytest
from builders.cases import for_each
from builders.nodes import FIRST, KEY, free_port, messages_to
from builders.tiny_model import tiny_model
from builders.watching import BOUND_SECONDS, runtime_folders

from penstock import __version__
from penstock.frontend.models.digests import digest_of_model
from penstock.frontend.models.model_files import find_model
from penstock.frontend.nodes.beats import Beats
from penstock.frontend.nodes.link import JoinedNode, Link
from penstock.frontend.nodes.node import Node
from penstock.frontend.session import open_model
from penstock.frontend.session.private import PrivateSession
from penstock.frontend.session.tree import tree
from penstock.protocol.errors import ConfigError
from penstock.protocol.fingerprint import PROTOCOL
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.ranks.meeting_file import MeetingFile
from penstock.protocol.ranks.node_messages import BEAT_SECONDS, NO_BEAT, Join, Kind
from penstock.protocol.ranks.node_sockets import LinkSocket

FITTING = Join(PROTOCOL, __version__, 2, 3, "b", "d" * 64, {})


def link() -> Link:
    """Node 0 of three, whose second has joined."""
    made = Link.__new__(Link)
    made.config = EngineConfig.from_options("m", nnodes=3, tensor_parallel_size=6, dtype="bf16", seed=7)
    made.digest = "d" * 64
    made.nodes = {1: JoinedNode(1, b"", "a", 0.0)}
    return made


@for_each("given", [{}, {"tensor_parallel_size": 2}, {"tensor_parallel_size": 6}, {"nnodes": 5, "node_rank": 4}])
def test_a_front_end_that_is_not_on_node_0_is_told_what_to_run_there(given, monkeypatch):
    given = {"nnodes": 2, "node_rank": 1, "master_addr": "10.1.2.3", **given}
    monkeypatch.setattr(tree, "start_ranks", lambda *given: pytest.fail("a process is started"))
    rank = f"--nnodes {given['nnodes']} --node-rank {given['node_rank']}"
    for opened in (open_model, PrivateSession):  # a script or the command line; the daemon
        with pytest.raises(ConfigError, match=f"`penstock worker pocket {rank} --master-addr 10.1.2.3 --master-port"):
            opened("pocket", given)


@for_each("change, words", [
    ({}, None),
    ({"options": {"tensor_parallel_size": 6, "dtype": "bfloat16", "seed": 7, "max_num_seqs": None}}, None),
    ({"version": "9.9"}, "it runs Penstock 9.9"), ({"protocol": "0" * 16}, "Install the same version on all machines"),
    ({"nnodes": 2}, "it was told nnodes=2, and node 0 nnodes=3"), ({"nnodes": 0}, "nnodes=0"),
    ({"node_rank": 0}, "node_rank=0 is none of 1 to 2"), ({"node_rank": 3}, "none of 1 to 2"),
    ({"node_rank": -1}, "none of 1 to 2"), ({"node_rank": 1}, "node_rank=1 has joined already, from a"),
    ({"digest": "e" * 64}, "its files of m are not those of node 0"), ({"digest": ""}, "Copy the same model"),
    ({"options": {"tensor_parallel_size": 4}}, "it was told tensor_parallel_size=4, and node 0 tensor_parallel_size=6"),
    ({"options": {"dtype": "float16"}}, "dtype='float16'"), ({"options": {"unknown": 1}}, "it was told unknown=1"),
])  # fmt: skip
def test_a_machine_that_does_not_fit_is_told_why(change, words):
    told = link()._refusal(msgspec.structs.replace(FITTING, **change))
    assert (words is None and told == "") or (words is not None and words in told and told.endswith(".")), told


def test_what_the_ranks_of_a_machine_write_to_find_others_goes_to_all_the_others_and_node_0s_to_all(tmp_path):
    made, sent = link(), []
    made.nodes = {number: JoinedNode(number, b"%d" % number, "a", 0.0) for number in (1, 2)}
    made.beats, made.meeting = Beats(), MeetingFile(tmp_path / "ranks")
    made.socket = SimpleNamespace(send=lambda *frames: sent.append(frames) is None)
    (tmp_path / "ranks").write_bytes(b"own ")
    made._hear(b"1", Kind.MEETING, b"theirs")
    assert (tmp_path / "ranks").read_bytes() == b"own theirs"
    kind = Kind.MEETING
    assert sorted(sent) == [(b"1", kind, b"own "), (b"2", kind, b"own "), (b"2", kind, b"theirs")]
    made.meeting.close()


@pytest.fixture
def new_node(tmp_path, monkeypatch) -> Callable[..., Node]:
    """Makes machine 1 of two, which joins at a free port."""
    monkeypatch.setenv("PENSTOCK_NODE_KEY", KEY)
    monkeypatch.setenv("PENSTOCK_HOST_IP", FIRST)
    monkeypatch.setattr("penstock.frontend.nodes.joining.JOIN_SECONDS", BOUND_SECONDS)

    model = tiny_model(tmp_path / "model", "qwen3")

    def new(address: str = FIRST) -> Node:
        given = {"nnodes": 2, "node_rank": 1, "master_addr": address, "master_port": free_port(), "quiet": True}
        config = EngineConfig.from_options(str(model), **given)
        return Node(config, find_model(config.model, None, None, is_quiet=True), {})

    return new


def link_of(node: Node) -> LinkSocket:
    return LinkSocket(node.config.master_addr, node.config.master_port, KEY.encode())


def test_a_machine_whose_connection_ends_before_it_is_welcome_asks_again(new_node):
    with closing(new_node()) as node, ThreadPoolExecutor(1) as pool:
        ended = pool.submit(node.run)
        with closing(link_of(node)) as link:  # of a tree that ends just then
            messages_to(link)
        with closing(link_of(node)) as link:
            [[identity, kind, _]] = messages_to(link)
            assert kind == b"join"
            link.send(identity, b"refused", b"It is full.")
            with pytest.raises(ConfigError, match="It is full"):
                ended.result(BOUND_SECONDS)


@for_each("error, words", [
    (ConfigError("No process could be started."), b"On node 1"), (OSError("No space left"), b"OSError: No space left"),
])  # fmt: skip
def test_a_machine_that_cannot_start_its_ranks_tells_node_0_why(new_node, monkeypatch, error, words):
    def fail(*_: object) -> Iterator[object]:
        raise error

    monkeypatch.setattr("penstock.frontend.nodes.own_ranks.start_ranks", fail)
    with closing(new_node()) as node, closing(link_of(node)) as link, ThreadPoolExecutor(1) as pool:
        ended = pool.submit(node.run)
        [[identity, *_]] = messages_to(link)
        config = EngineConfig.from_options("m", nnodes=2, tensor_parallel_size=2)
        link.send(identity, b"welcome", msgspec.msgpack.encode(Launch(config, "", "", 1)))
        [[_, kind, inbox, frame]] = messages_to(link)
        assert (kind, inbox) == (b"frame", b"frontend") and str(error).encode() in frame and words in frame
        with pytest.raises(type(error)):
            ended.result(BOUND_SECONDS)


def test_a_machine_that_cannot_find_node_0_leaves_no_folder_behind(new_node):
    before = runtime_folders()
    with pytest.raises(ConfigError, match="can't be found"):
        new_node("no-such-machine.invalid")
    assert runtime_folders() <= before


def test_a_model_has_one_digest_wherever_it_lies(tmp_path):
    for place in ("here", "there/further"):
        (folder := tmp_path / place).mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights")
    here, there = (digest_of_model(tmp_path / place) for place in ("here", "there/further"))
    assert here == there
    (tmp_path / "here" / "model.safetensors").write_bytes(b"Weights")
    assert digest_of_model(tmp_path / "here") != there


def test_time_in_which_a_process_was_stopped_is_no_silence_of_others(monkeypatch):
    now = 100.0
    monkeypatch.setattr("penstock.frontend.nodes.beats.time.monotonic", lambda: now)
    beats = Beats()
    heard = beats.now()
    for _ in range(60):
        now += BEAT_SECONDS / 2
        beats.due()
    assert beats.now() - heard == 30 * BEAT_SECONDS == NO_BEAT
    now += 1000.0
    assert beats.due() == BEAT_SECONDS and beats.now() - heard == NO_BEAT + BEAT_SECONDS
