"""Messages, columns, sockets, recordings and traces: what is sent is what arrives."""

import json
import os
import threading

import msgspec
import pytest

from penstock.protocol.errors import EngineDeadError
from penstock.protocol.fingerprint import PROTOCOL
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import (
    Abort,
    EngineInbox,
    StepPlan,
    WorkerInbox,
    column,
    request_and_sample,
    sequence_id,
    values,
    wide_column,
    wide_values,
)
from penstock.protocol.processes.recording import Recorder, read_recording
from penstock.protocol.processes.runtime_directory import RuntimeDirectory, runtime_base
from penstock.protocol.processes.sockets import MARK, Inbox, Outbox
from penstock.protocol.processes.trace import Trace


@pytest.fixture
def directory():
    directory = RuntimeDirectory()
    yield directory.path
    directory.remove()


def test_columns_give_back_their_values():
    assert list(values(column([1, -1, 2**31 - 1]))) == [1, -1, 2**31 - 1]
    assert list(wide_values(wide_column([2**40]))) == [2**40]


def test_a_sequence_id_names_its_request_and_sample():
    assert request_and_sample(sequence_id(12345, 127)) == (12345, 127)


def test_a_plan_survives_the_wire():
    changes = GroupChanges(column([9, 8]), column([0, 1, 2]))
    plan = StepPlan(3, column([0, 4]), column([7, 1]), [changes], freed=column([2]))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=WorkerInbox) == plan


def test_the_protocol_has_a_hash():
    assert len(PROTOCOL) == 16


def test_messages_of_one_sender_arrive_in_order(directory):
    inbox, outbox = Inbox(directory, "engine", EngineInbox), Outbox(directory, "engine")
    for number in range(1000):
        outbox.send(Abort([number]))
    assert [inbox.receive(5).sequence_ids for _ in range(1000)] == [[number] for number in range(1000)]
    assert inbox.receive(0) is None
    inbox.close()
    outbox.close()


def test_what_does_not_come_from_one_of_ours_is_passed_over(directory, caplog):
    inbox, outbox = Inbox(directory, "engine", EngineInbox), Outbox(directory, "engine")
    for number in range(3):
        for foreign in (b"", b"garbage", msgspec.msgpack.encode(Abort([9]))):
            outbox.socket.send(foreign)
        outbox.send(Abort([number]))
    assert [inbox.receive(5).sequence_ids for _ in range(3)] == [[0], [1], [2]]
    outbox.socket.send(b"garbage")
    assert inbox.receive(0.05) is None
    assert len(caplog.records) == 1 and "'engine'" in caplog.text
    inbox.close()
    outbox.close()


@pytest.mark.parametrize(
    "frame, words",
    [
        (MARK + msgspec.msgpack.encode(Abort([9]))[:-1], "can't be decoded"),
        (MARK, "can't be decoded"),
        (MARK + msgspec.msgpack.encode(["Unheard"]), "can't be decoded"),
        (MARK[:-1], "another version"),
        (MARK[:-8] + b"12345678", "another version"),
    ],
)
def test_what_one_of_ours_says_is_never_passed_over(directory, frame, words):
    inbox, outbox = Inbox(directory, "engine", EngineInbox), Outbox(directory, "engine")
    outbox.socket.send(frame)
    with pytest.raises(EngineDeadError, match=words):
        inbox.receive(5)
    inbox.close()
    outbox.close()


def test_waiting_for_a_message_ends_when_a_descriptor_becomes_readable(directory):
    inbox = Inbox(directory, "engine", EngineInbox)
    read_end, write_end = os.pipe()
    threading.Timer(0.05, os.write, (write_end, b"x")).start()
    assert inbox.receive_or([read_end]) is None
    inbox.close()


def test_a_recording_gives_back_its_messages_and_ends_at_a_torn_one(tmp_path):
    recorder = Recorder(str(tmp_path / "stream"))
    recorder.write(Abort([1]), is_answer=False)
    recorder.write(Abort([2]), is_answer=True)
    whole = (tmp_path / "stream").read_bytes()
    (tmp_path / "torn").write_bytes(whole[:-1])
    read = [(entry.message.sequence_ids, entry.is_answer) for entry in read_recording(tmp_path / "stream", EngineInbox)]
    assert read == [([1], False), ([2], True)]
    assert len(list(read_recording(tmp_path / "torn", EngineInbox))) == 1


def test_a_trace_is_a_list_of_events_with_their_process(tmp_path):
    path = str(tmp_path / "trace.json")
    Trace.create(path)
    trace = Trace(path, "engine")
    with trace.span("plan", step=1):
        pass
    trace.flush()
    events = json.loads((tmp_path / "trace.json").read_text().rstrip().rstrip(",") + "]")
    assert [event["name"] for event in events] == ["process_name", "plan"]
    assert events[1]["args"] == {"step": 1}


def test_a_full_disk_ends_a_recording_and_a_trace_with_a_sentence_each_and_nothing_else(caplog):
    recorder, trace = Recorder("/dev/full"), Trace("/dev/full", "engine")
    for _ in range(3):
        recorder.write(Abort([1]), is_answer=False)
        with trace.span("plan"):
            pass
        trace.flush()
    assert len(caplog.messages) == 2
    for option, told in zip(("record", "trace"), caplog.messages):
        assert f"What {option}= writes ends here" in told and "no space left on device" in told and "make room" in told


def test_the_folder_of_a_dead_tree_is_swept_by_the_next_start(directory):
    dead = RuntimeDirectory()
    (dead.path / "engine").write_text("")
    os.close(dead._folder._mark)  # as the kernel does when its owner ends
    other = RuntimeDirectory()
    assert not dead.path.exists()
    assert directory.exists(), "a living tree's folder must stay"
    other.remove()
    assert not other.path.exists()


def test_a_runtime_folder_open_to_others_is_refused(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir(mode=0o755)
    monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", str(tmp_path / "open"))
    with pytest.raises(ValueError, match="PENSTOCK_RUNTIME_DIR=.*open must be .* 0700.*`chmod 700`"):
        runtime_base()


def test_a_runtime_folder_too_deep_for_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", str(tmp_path / ("deep" * 30)))
    with pytest.raises(ValueError, match="shorter"):
        runtime_base()
