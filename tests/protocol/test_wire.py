"""Messages, columns, sockets, recordings, traces and outputs: what is sent is what arrives, of known size."""

import dataclasses
import json
import math
import os
import threading
import tracemalloc
from contextlib import closing

import msgspec
import numpy as np
import pytest
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from penstock.protocol.errors import (
    AdapterError,
    ChildFailure,
    ConfigError,
    EngineDeadError,
    Failure,
    LimitError,
    PenstockError,
    RequestError,
    raised_by,
)
from penstock.protocol.fingerprint import PROTOCOL
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import Abort, EngineInbox, StepPlan, WorkerInbox, request_and_sample, sequence_id
from penstock.protocol.outputs import FunctionCall, Samples, ToolCall
from penstock.protocol.packed import MOST_VALUES, array_length, unpacked_bytes
from penstock.protocol.processes.recording import Recorder, read_recording
from penstock.protocol.processes.runtime_directory import RuntimeDirectory, runtime_base
from penstock.protocol.processes.sockets import MARK, Inbox, Outbox
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import column, values, wide_column, wide_values


@pytest.fixture
def directory():
    directory = RuntimeDirectory()
    yield directory.path
    directory.remove()


@pytest.fixture
def inbox(directory):
    with closing(Inbox(directory, "engine", EngineInbox)) as inbox:
        yield inbox


@pytest.fixture
def outbox(directory, inbox):
    with closing(Outbox(directory, "engine")) as outbox:
        yield outbox


def test_columns_and_plans_survive_the_wire():
    assert list(values(column([1, -1, 2**31 - 1]))) == [1, -1, 2**31 - 1]
    assert list(wide_values(wide_column([2**40]))) == [2**40]
    assert request_and_sample(sequence_id(12345, 127)) == (12345, 127)
    changes = GroupChanges(column([9, 8]), column([0, 1, 2]))
    plan = StepPlan(3, column([0, 4]), column([7, 1]), [changes], freed=column([2]))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=WorkerInbox) == plan
    assert len(PROTOCOL) == 16


class UnknownHereError(LimitError):
    pass


@for_each("error, kind", [
    (AdapterError("it is in use", "busy"), AdapterError), (ConfigError("no"), ConfigError),
    (UnknownHereError("too long"), LimitError), (ZeroDivisionError("by zero"), PenstockError),
    (raised_by(ChildFailure("worker 0", "ValueError", "odd", "Traceback: line 1")), EngineDeadError),
])  # fmt: skip
def test_an_error_that_the_daemon_tells_of_has_its_class_reason_and_a_childs_traceback(error, kind):
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(Failure.of(error)), type=Failure).error()
    assert type(told) is kind and str(told) == str(error) and type(told.__cause__) is type(error.__cause__)
    assert getattr(told, "reason", None) == getattr(error, "reason", None)
    assert str(told.__cause__) == str(error.__cause__)


def test_messages_of_one_sender_arrive_in_order_and_what_none_of_ours_has_sent_is_passed_over(inbox, outbox, caplog):
    for number in range(1000):
        outbox.send(Abort([number]))
    assert [inbox.receive(60).sequence_ids for _ in range(1000)] == [[number] for number in range(1000)]
    assert inbox.receive(0) is None
    for number in range(3):
        for foreign in (b"", b"garbage", msgspec.msgpack.encode(Abort([9]))):
            outbox.socket.send(foreign)
        outbox.send(Abort([number]))
    assert [inbox.receive(60).sequence_ids for _ in range(3)] == [[0], [1], [2]]
    outbox.socket.send(b"garbage")
    assert inbox.receive(0.05) is None
    assert len(caplog.records) == 1 and "'engine'" in caplog.text


@for_each("frame, words", [
    (MARK + msgspec.msgpack.encode(Abort([9]))[:-1], "can't be decoded"),
    (MARK, "can't be decoded"),
    (MARK + msgspec.msgpack.encode(["Unheard"]), "can't be decoded"),
    (MARK[:-1], "another version"),
    (MARK[:-8] + b"12345678", "another version"),
])  # fmt: skip
def test_what_one_of_ours_says_is_never_passed_over(inbox, outbox, frame, words):
    outbox.socket.send(frame)
    with pytest.raises(EngineDeadError, match=words):
        inbox.receive(60)


def test_waiting_for_a_message_ends_when_a_descriptor_becomes_readable(inbox):
    read_end, write_end = os.pipe()
    threading.Timer(0.05, os.write, (write_end, b"x")).start()
    assert inbox.receive_or([read_end]) is None


def test_a_recording_is_read_to_a_torn_message_and_a_full_disk_ends_it_and_a_trace_with_a_sentence(tmp_path, caplog):
    recorder = Recorder(str(tmp_path / "stream"))
    recorder.write(Abort([1]), is_answer=False)
    recorder.write(Abort([2]), is_answer=True)
    whole = (tmp_path / "stream").read_bytes()
    (tmp_path / "torn").write_bytes(whole[:-1])
    read = [(entry.message.sequence_ids, entry.is_answer) for entry in read_recording(tmp_path / "stream", EngineInbox)]
    assert read == [([1], False), ([2], True)]
    assert len(list(read_recording(tmp_path / "torn", EngineInbox))) == 1
    recorder, trace = Recorder("/dev/full"), Trace("/dev/full", "engine")
    for _ in range(3):
        recorder.write(Abort([1]), is_answer=False)
        with trace.span("plan"):
            pass
        trace.flush()
    assert len(caplog.messages) == 2
    for option, told in zip(("record", "trace"), caplog.messages):
        assert f"What {option}= writes ends here" in told and "no space left on device" in told and "make room" in told


def test_a_runtime_folder_open_to_others_or_too_deep_for_a_socket_is_refused(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)  # whatever this process's umask
    sentences = {"open": "PENSTOCK_RUNTIME_DIR=.*open must be .* 0700.*`chmod 700`", "deep" * 30: "shorter"}
    for name, sentence in sentences.items():
        monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", str(tmp_path / name))
        with pytest.raises(ValueError, match=sentence):
            runtime_base()


# --- the size of a packed message once it is unpacked, found out without unpacking it -------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
    max_leaves=40,
)


def num_values(value) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(num_values, value)) + sum(map(num_values, value.values()))
    return 1 + sum(map(num_values, value)) if isinstance(value, list) else 1


@given(plain)
@settings(max_examples=25)
def test_every_value_is_counted_once(value):
    packed = msgspec.msgpack.encode(value)
    assert unpacked_bytes(packed) == len(packed) + 128 * num_values(value)
    assert array_length(packed) == (len(value) if isinstance(value, list) else 0)


@for_each("length", [0, 15, 16, 255, 256, 65_535, 65_536])
def test_texts_bytes_and_arrays_of_every_length_are_skipped_whole(length):
    for value in ("x" * length, b"x" * length, [1] * length, {str(number): "x" for number in range(length // 2)}):
        packed = msgspec.msgpack.encode(value)
        assert unpacked_bytes(packed) == len(packed) + 128 * num_values(value)


@for_each("value, count", [
    ({}, 30_000), ([], 30_000), ({0: 0}, 9_000), ("ab", 30_000), ("éa", 30_000), (1000, 30_000), (1.5, 30_000),
])  # fmt: skip
def test_a_message_never_takes_more_once_it_is_unpacked(value, count):
    packed = msgspec.msgpack.encode([value] * count)
    tracemalloc.start()
    unpacked = msgspec.msgpack.decode(packed)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(unpacked) == count and taken <= unpacked_bytes(packed)


def test_more_values_than_any_request_needs_are_refused_before_they_are_looked_at():
    for many in (b"\xdd" + b"\xff" * 4, b"\xdf" + b"\xff" * 4, msgspec.msgpack.encode([[]] * (MOST_VALUES + 1))):
        with pytest.raises(RequestError, match="holds more"):
            unpacked_bytes(many)


# --- outputs as dicts and as JSON ------------------------------------------------------------------------------------


def full_output() -> RequestOutput:
    call = ToolCall("call_1", FunctionCall("add", '{"a": 1}'))
    logprobs = [{7: Logprob(-0.5, 1, "½"), 9: Logprob(-math.inf, 2)}]
    samples = Samples(
        CompletionOutput(number, "tëxt", [7], "tool_calls", logprobs=logprobs, tool_calls=[call]) for number in (0, 1)
    )
    return RequestOutput("3", "p", [1, 2], samples, True, RequestMetrics(1.5), prompt_logprobs=[None, *logprobs])


def test_the_json_reads_back_as_the_dict_with_every_field():
    output = full_output()
    output.prompt = "a\ud800b"  # half a surrogate pair, which is written as its escape
    plain, text = output.to_dict(), output.to_json()
    assert json.loads(text) == plain == json.loads(json.dumps(plain, allow_nan=False))
    assert json.loads(output.to_json(indent=2)) == plain
    assert text.encode() and "tëxt" in text and "\n" not in text
    assert list(plain) == [field.name for field in dataclasses.fields(RequestOutput)]
    assert plain["outputs"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert plain["outputs"][0]["logprobs"] == [
        {
            "7": {"logprob": -0.5, "rank": 1, "decoded_token": "½"},
            "9": {"logprob": -9999.0, "rank": 2, "decoded_token": None},
        }
    ]
    assert plain["prompt_logprobs"][0] is None and plain["metrics"]["arrival_time"] == 1.5
    assert output.outputs.to_dict() == output.outputs[0].to_dict() == plain["outputs"][0], "the first answer alone"
    for part in (output.outputs[0].tool_calls[0], output.outputs[0].tool_calls[0].function, output.metrics):
        assert json.loads(part.to_json()) == part.to_dict()


@for_each("ids", [np.array([1, 2]), [np.int64(1), np.int32(2)], (1, 2), range(1, 3)])
def test_what_is_no_list_of_python_numbers_becomes_one(ids):
    output = full_output()
    output.prompt_token_ids = ids
    output.outputs[0].cumulative_logprob = np.float32(-0.5)
    plain = json.loads(output.to_json())
    assert plain["prompt_token_ids"] == [1, 2] and plain["outputs"][0]["cumulative_logprob"] == -0.5
