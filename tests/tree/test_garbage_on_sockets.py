"""Whatever reaches a tree's sockets without being a message of its processes, nobody is left waiting for an answer.

The sockets lie in a folder of the user's own, so whoever writes there is a process of the same user: one with a bug, or
of another version.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from builders.starts import STAND_IN
from builders.watching import assert_gone, bounded, tree_processes

from penstock import LLM, EngineDeadError, SamplingParams
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import Delta, Deltas, Generate, Prompt, StepPlan, StepResult, Stop, Tokens, sequence_id
from penstock.protocol.processes.sockets import MARK
from penstock.protocol.wire import wide_column

SOCKETS = ("frontend", "engine", "detokenizer", "worker0")
REQUESTS = 100
STOP = msgspec.msgpack.encode(Stop())
PARAMS = SamplingParams(max_tokens=3, ignore_eos=True, seed=1)

FOREIGN = [
    [b""],
    [b"\x00"],
    [b"garbage"],
    [STOP],  # of who doesn't say who it is
    [MARK[:7]],
    [b"\xff" * 100_000],
    [b"\x91" * 100_000],
    [b"\xdd\xff\xff\xff\xff"],
    [b"one", b"two", b"three"],
    [os.urandom(1 << 22)],
]


@pytest.fixture
def doomed(model_folder) -> Iterator[LLM]:
    with LLM(model_folder, quiet=True, **STAND_IN) as llm:
        yield llm


def directory_of(llm: LLM) -> Path:
    return llm._session.transport.tree.directory.path


def send(llm: LLM, name: str, *frames: list[bytes]) -> None:
    """Send as another process would; returns when the other end has taken over everything."""
    context = zmq.Context()
    push = context.socket(zmq.PUSH)
    push.connect(f"ipc://{directory_of(llm) / name}")
    for parts in frames:
        push.send_multipart(parts)
    push.close(linger=5000)
    context.term()


def answered(llm: LLM) -> list[int]:
    return bounded(lambda: list(llm.generate([[1, 2, 3]], PARAMS, use_tqdm=False)[0].outputs.token_ids))


def test_what_is_none_of_ours_is_dropped_at_every_socket_with_one_line(stand_in, caplog):
    expected = answered(stand_in)
    for name in SOCKETS:
        send(stand_in, name, *FOREIGN)
        assert answered(stand_in) == expected, name
    said = caplog.text + stand_in._session.transport.tree.log.read_text()
    for name in SOCKETS:
        assert said.count(f"no message of Penstock's came to the socket {name!r}") == 1, said


NONSENSE = {
    "frontend": Deltas([Delta(sequence_id(number, 0), "", b"123", 0) for number in range(REQUESTS)]),
    "engine": StepResult(999, b"123", b"", 0.0),
    "engine, of a request": Generate([Prompt(7, b"123", PARAMS, 0, 0.0)]),
    "detokenizer": Tokens(wide_column([1]), b"123"),
    "worker0": StepPlan(0, b"123", b"", [GroupChanges(b"", b"")]),
}
UNREADABLE = {
    "frontend": MARK + STOP[:-1],
    "engine": MARK + msgspec.msgpack.encode(["Unheard"]),
    "detokenizer": MARK[:-1] + b"\x00" + STOP,  # of another version
    "worker0": MARK + STOP[:-1],
}
CASES = [
    *((name, frame, f"at the socket '{name}'") for name, frame in UNREADABLE.items()),
    *((name.partition(",")[0], MARK + msgspec.msgpack.encode(each), "Error") for name, each in NONSENSE.items()),
]
QUICK = [case for case in CASES if case[0] == "frontend"]
LONG = [pytest.param(*case, marks=pytest.mark.long) for case in CASES if case not in QUICK]


@pytest.mark.parametrize(
    "name, frame, words", [*QUICK, *LONG], ids=lambda value: value if isinstance(value, str) else "frame"
)
def test_what_is_ours_and_cannot_be_read_or_makes_no_sense_ends_the_tree_with_its_cause(doomed, name, frame, words):
    pids = tree_processes(doomed).values()

    def keep_sending() -> None:
        for _ in range(REQUESTS):  # one may be answered before the frame has its turn
            stream = doomed.stream([1, 2, 3], SamplingParams(max_tokens=400, ignore_eos=True))
            next(stream)
            send(doomed, name, [frame])
            list(stream)

    with pytest.raises(EngineDeadError, match=words):
        bounded(keep_sending)
    assert_gone(pids)
