"""What a router learns of a cache from its KV events, and the socket that they come through."""

import random
import socket
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest
import zmq
from builders.cases import for_each
from builders.engine_harness import Harness, medium, prompt
from builders.kv_router import Router
from builders.nodes import free_port
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.adapters import AdapterTable
from penstock.engine.event_publisher import EventPublisher
from penstock.engine.event_replays import END, Replays
from penstock.engine.event_socket import EventSocket
from penstock.engine.memory.events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvents, event_hash
from penstock.engine.memory.keys import next_key, root_key
from penstock.protocol.adapter_messages import AdapterLoaded, LoadLora, UnloadLora
from penstock.protocol.errors import ConfigError
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import sequence_id
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.kv_events import KvEventsConfig, as_kv_events
from penstock.protocol.wire import column

SIZE = 4
visits = st.tuples(
    st.integers(1, 2), st.integers(1, 40), st.lists(st.integers(1, 3), max_size=6),
    st.sampled_from([None, None, "salt", "other"]), st.booleans(), st.sampled_from([None, None, None, "one", "two"]),
)  # fmt: skip


def adapters() -> AdapterTable:
    table = AdapterTable(1, 1, lambda order: None, lambda answer: None)
    load(table)
    return table


def load(table: AdapterTable, identity: str = "") -> None:
    """Load other weights under the name that requests use."""
    if table.names():
        table.unload(UnloadLora(0, "poet"), ())
    table.load(LoadLora(0, "poet", "/poet"))
    table.loaded(AdapterLoaded(0, 0, identity=identity))


@given(st.lists(visits, min_size=2, max_size=12), st.sampled_from([12, 16, 40]))
@settings(max_examples=60)
def test_a_router_knows_from_the_events_how_much_of_each_prompt_is_found(history, num_blocks):
    harness = Harness(num_blocks=num_blocks, adapters=adapters(), is_observed=True)
    for number, (stem, length, tail, salt, is_poet, weights) in enumerate(history):
        if weights is not None:
            load(harness.scheduler.adapters, weights)
            harness.router.check()
        tokens, lora = [stem] * length + tail, ["poet"] if is_poet else []
        first = [*lora, *([] if salt is None else [salt])]
        expected = harness.router.prefix(tokens, SIZE, first or None, lora or None)
        found = harness.visit(number, tokens, cache_salt=salt, lora_name="poet" if is_poet else None)
        assert found == min(expected, (len(tokens) - 1) // SIZE) * SIZE


@pytest.mark.parametrize("seed", range(3))
def test_a_router_knows_every_rung_of_every_group_whatever_adapter_is_loaded_when(seed):
    chance = random.Random(seed)
    full, window = GroupPlan("full", 1, 1, 130, None, 30), GroupPlan("full", 1, 1, 130, 8, 30)
    state = GroupPlan("state", 1, 1, 10, None, 4)
    groups = [(full,), (full, window), (full, state)][seed]
    harness = Harness(groups=groups, max_model_len=256, num_disks=1, adapters=adapters(), is_observed=True)
    load(harness.scheduler.adapters)
    prefixes = [[stem] * 200 for stem in (1, 2)]
    for number in range(30):
        if chance.random() < 0.5:  # the disk may still bring blocks for a request that is gone
            harness.add(prompt(1000 + number, chance.choice(prefixes), lora_name="poet"))
            harness.plan()
            harness.abort(sequence_id(1000 + number, 0))
            load(harness.scheduler.adapters, chance.choice(["one", "two"]))
            harness.router.check()
        for each in range(2):
            length, lora = chance.randrange(200), chance.choice([None, "poet"])
            tokens = chance.choice(prefixes)[:length] + [chance.randrange(1, 9)]
            harness.add(prompt(2 * number + each, tokens, lora_name=lora, max_tokens=chance.randrange(1, 9)))
        harness.run()
        if chance.random() < 0.7:  # answers of the disk may come later
            harness.disk.answer(harness.scheduler)
            harness.router.check()
    stats = harness.scheduler.stats()
    assert stats.loaded_blocks and stats.fetched_blocks, "blocks have come from below"


def test_an_event_has_the_fields_and_the_hashes_that_readers_expect():
    harness = Harness(num_blocks=3, num_cpu_blocks=1, max_num_seqs=1, is_observed=True)
    harness.visit(1, [5, 6, 7, 8, 9, 10, 11, 12, 13], cache_salt="tenant", max_tokens=1)
    harness.visit(2, [1] * 9, max_tokens=1)
    read = [event for frame in harness.router.frames for event in msgspec.msgpack.decode(frame)[1]]
    keys = [root_key("tenant", None, None)]
    for tokens in ([5, 6, 7, 8], [9, 10, 11, 12]):
        keys.append(next_key(keys[-1], column(tokens)))
    first, second = map(event_hash, keys[1:])
    assert read[0] == {"type": "AllBlocksCleared"}
    assert read[1] == {
        "type": "BlockStored", "block_hashes": [first, second], "parent_block_hash": None,
        "token_ids": [5, 6, 7, 8, 9, 10, 11, 12], "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None,
        "extra_keys": [["tenant"], None],
    }  # fmt: skip
    moved = {**read[1], "block_hashes": [second], "token_ids": [], "medium": "CPU"}
    del moved["extra_keys"]
    assert moved in read and {"type": "BlockRemoved", "block_hashes": [second], "medium": "GPU"} in read
    # The decoder that vLLM publishes for its own events has these types.
    types = msgspec.msgpack.Decoder(tuple[float, list[BlockStored | BlockRemoved | AllBlocksCleared], int])
    assert next(event for frame in harness.router.frames for event in types.decode(frame)[1]) == AllBlocksCleared()


def test_tokens_and_salts_are_published_only_on_request_and_media_adapters_and_salts_tell_blocks_apart():
    sees = {"media": MediaPlan(9, 1, 1, 1000, 1000), "adapters": adapters()}
    asked = prompt(1, [500] * 6 + [1] * 6, media=[medium(7, (2, 3))], cache_salt="s", lora_name="poet", max_tokens=1)
    for has_token_ids in (False, True):
        harness = Harness(**sees)
        router = Router(harness.scheduler.cache, harness.scheduler.adapters, has_token_ids=has_token_ids)
        harness.add(asked).run()
        router.check()
        _, stored = (event for frame in router.frames for event in msgspec.msgpack.decode(frame)[1])
        assert stored["token_ids"] == ([500] * 6 + [1] * 6 if has_token_ids else [])
        digest = asked.media[0].digest.hex()
        assert stored["lora_name"] == "poet"
        extra = [["poet", [digest, 2], "s"], ["poet", [digest, 0]], ["poet"]]
        assert stored.get("extra_keys") == (extra if has_token_ids else None)


# --- the socket -------------------------------------------------------------------------------------------------------


class Reader:
    """Subscribes, and asks for a repetition, as vLLM's example does."""

    def __init__(self, config: KvEventsConfig) -> None:
        self.context = zmq.Context()
        self.events, self.replay = self.context.socket(zmq.SUB), self.context.socket(zmq.DEALER)
        for each in (self.events, self.replay):
            each.setsockopt(zmq.RCVTIMEO, 60_000)
        self.events.setsockopt_string(zmq.SUBSCRIBE, config.topic)
        self.events.connect(config.endpoint)
        self.replay.connect(config.replay_endpoint)

    def repeated(self, start: bytes) -> list[list[bytes]]:
        self.replay.send_multipart([b"", start])
        frames = []
        while True:
            empty, *frame = self.replay.recv_multipart()
            assert empty == b""
            if frame[-1] == b"":
                assert frame == [b"", (-1).to_bytes(8, signed=True), b""]
                return frames
            frames.append(frame)


@pytest.fixture
def opened(tmp_path) -> Iterator[SimpleNamespace]:
    """A publisher at its addresses, and a reader."""
    config = as_kv_events({
        "endpoint": f"tcp://127.0.0.1:{free_port()}", "replay_endpoint": f"ipc://{tmp_path}/replay",
        "topic": "kv@here@model", "buffer_steps": 4,
    })  # fmt: skip
    harness = Harness()
    events = KvEvents(harness.scheduler.cache.groups, SIZE, has_token_ids=True)
    publisher, reader = EventPublisher(events, config, clock=lambda: harness.now), Reader(config)
    yield SimpleNamespace(config=config, harness=harness, publisher=publisher, reader=reader)
    publisher.close()
    reader.context.destroy(linger=0)


def test_batches_are_numbered_and_the_newest_are_repeated_to_whoever_asks(opened):
    opened.publisher.flush()
    for number in range(5):
        opened.harness.visit(number, [number] * 9)
        opened.publisher.flush()
        opened.publisher.flush()  # nothing new
    while len(frames := opened.reader.repeated((0).to_bytes(8))) < 4 or frames[-1][1] != (5).to_bytes(8):
        pass
    assert [int.from_bytes(number) for _, number, _ in frames] == [2, 3, 4, 5], "as many as are kept"
    assert {topic for topic, _, _ in frames} == {b"kv@here@model"}
    for foreign in (b"", b"1", bytes(9), (1).to_bytes(8) * 2):  # are no requests
        opened.reader.replay.send_multipart([b"", foreign])
    opened.reader.replay.send_multipart([b"no", bytes(8), b"request"])
    assert opened.reader.repeated((5).to_bytes(8)) == frames[3:]
    last = 5
    while not opened.reader.events.poll(20):  # until the subscription has arrived
        opened.harness.visit(last, [last % 500] * 9)
        opened.publisher.flush()
        last += 1
    while (live := opened.reader.events.recv_multipart())[1] != last.to_bytes(8):
        assert live[0] == b"kv@here@model"
    assert opened.reader.repeated(last.to_bytes(8)) == [live]


def test_readers_that_never_read_cost_little_and_hold_up_no_other(tmp_path):
    config = as_kv_events({name: f"ipc://{tmp_path}/{name}" for name in ("endpoint", "replay_endpoint")})
    published, reader = EventSocket(config), Reader(config)
    frames = [number.to_bytes(2) * 25_000 for number in range(200)]  # 10 MB
    for number, frame in enumerate(frames):
        assert published.send(number, frame)
    whole = [[b"", number.to_bytes(8), frame] for number, frame in enumerate(frames)]
    while (found := reader.repeated(bytes(8))) != whole:
        assert found == whole[: len(found)], "it was asked before all had been published"
    memory = psutil.Process().memory_info().rss
    with zmq.Context() as context:
        idle = [context.socket(zmq.DEALER) for _ in range(60)]
        for each in idle:
            each.setsockopt(zmq.LINGER, 0)
            each.setsockopt(zmq.RCVHWM, 1)
            each.connect(config.replay_endpoint)
            for _ in range(3):
                each.send_multipart([b"", bytes(8)])
            assert each.poll(60_000), "its answer has begun"
        for start in (0, 150, 199, 200, 2**64 - 1):
            assert reader.repeated(start.to_bytes(8)) == whole[start:]
        # A connection once took 1.9 histories.
        assert psutil.Process().memory_info().rss - memory < 20 * sum(map(len, frames))
        late = [[idle[0].recv_multipart()[1:] for _ in range(201)] for _ in range(3)]
        assert late == [[*whole, [b"", (-1).to_bytes(8, signed=True), b""]]] * 3
        for each in idle:
            each.close()
    assert reader.repeated(bytes(8)) == whole, "those that left are forgotten"
    published.close()
    reader.context.destroy(linger=0)


def test_a_reader_that_asks_on_and_on_without_reading_gets_a_bounded_number_of_answers_and_then_more_if_it_asks_again():
    with zmq.Context() as context:
        router, reader = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.bind("inproc://replay")
        reader.connect("inproc://replay")
        replays = Replays(router, b"topic", deque([(bytes(8), zmq.Frame(b"frame"))]))
        for asked in (100, 1):
            for _ in range(asked):
                reader.send_multipart([b"", bytes(8)])
            for _ in range(asked):
                replays.take()
            while replays.patience is not None:
                replays.go_on()
            answers = []
            while reader.poll(0):
                answers.append(reader.recv_multipart()[1:])
            assert answers == [[b"topic", bytes(8), b"frame"], [b"", END, b""]] * min(asked, 8)
        router.close()
        reader.close()


def test_an_address_that_is_taken_or_a_file_is_refused_and_left_alone(opened, tmp_path):
    nothing, precious = KvEvents([], SIZE, has_token_ids=False), tmp_path / "precious"
    precious.write_text("mine")
    for taken in ({"endpoint": opened.config.endpoint}, {"endpoint": opened.config.replay_endpoint},
                  {"endpoint": f"ipc://{precious}"}, {"endpoint": f"ipc://{tmp_path}/no/folder"}):  # fmt: skip
        config = as_kv_events(taken)
        with pytest.raises(ConfigError, match=f"endpoint {config.endpoint} can't be opened"):
            EventPublisher(nothing, config)
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(f"{tmp_path}/busy")
        busy.listen(0)
        waiting.connect(f"{tmp_path}/busy")  # now no other can
        with pytest.raises(ConfigError, match="Address already in use"):
            EventPublisher(nothing, as_kv_events({"endpoint": f"ipc://{tmp_path}/busy"}))
    with pytest.raises(ConfigError, match="replay_endpoint .* can't be opened"):
        EventPublisher(
            nothing, as_kv_events({"endpoint": f"ipc://{tmp_path}/new", "replay_endpoint": f"ipc://{precious}"})
        )
    assert precious.read_text() == "mine" and not (tmp_path / "new").exists()
    assert opened.reader.repeated(bytes(8)) == []
    assert stat.S_ISSOCK(Path(opened.config.replay_endpoint.removeprefix("ipc://")).stat().st_mode)


def test_each_of_several_trees_has_addresses_and_a_rank_of_its_own(tmp_path):
    base = as_kv_events({"endpoint": "tcp://*:5557", "replay_endpoint": f"ipc://{tmp_path}/replay"})
    assert base.of_rank(0) is base and base.rank == 0
    moved = base.of_rank(2)
    assert (moved.rank, moved.endpoint, moved.replay_endpoint) == (2, "tcp://*:5559", f"ipc://{tmp_path}/replay.2")
    assert EngineConfig.from_options("m", kv_events_config=moved).kv_events_config == moved
    with pytest.raises(ConfigError, match="leaves no port"):
        as_kv_events({"endpoint": "tcp://*:65535"}).of_rank(1)
    longest = as_kv_events({"replay_endpoint": f"ipc:///{'x' * 104}"})
    assert longest.of_rank(9).replay_endpoint.endswith("x.9")
    with pytest.raises(ConfigError, match="leaves no room for tree 10"):
        longest.of_rank(10)
    for one, other in (("tcp://*:5557", "tcp://*:5558"), ("tcp://*:7", "tcp://*:5"), ("ipc:///a/b", "ipc:///a/b.2")):
        apart = {"endpoint": one, "replay_endpoint": other}
        assert EngineConfig.from_options("m", kv_events_config=apart).kv_events_config is not None
        with pytest.raises(ConfigError, match="data_parallel_size=3"):
            EngineConfig.from_options("m", kv_events_config=apart, data_parallel_size=3)


EVERYWHERE = {"endpoint": "tcp://*:5557", "topic": "kv@pod@m"}


@for_each("written, expected", [
    *((off, None) for off in (False, None, {"enable_kv_cache_events": False}, {"publisher": "null"}, "false")),
    (True, {}), ('{"enable_kv_cache_events": true, "publisher": "zmq"}', {}), (EVERYWHERE, EVERYWHERE),
    ({"endpoint": "tcp://localhost:1"}, {"endpoint": "tcp://127.0.0.1:1"}), ({"token_ids": True}, {"token_ids": True}),
])  # fmt: skip
def test_events_are_off_unless_they_are_wanted_and_on_loopback_unless_an_address_is_given(written, expected):
    found = EngineConfig.from_options("m", kv_events_config=written).kv_events_config
    assert found == (None if expected is None else KvEventsConfig(**expected))


@for_each("written, sentence", [
    ({"endpont": 1}, "endpont"), ({"endpoint": "127.0.0.1:5557"}, "such as tcp://127.0.0.1:5557"),
    ({"endpoint": "udp://127.0.0.1:5557"}, "endpoint='udp://"), ({"endpoint": "tcp://127.0.0.1:0"}, "='tcp://127"),
    ({"endpoint": 7}, "endpoint=7"), ({"endpoint": "ipc:///" + "x" * 200}, "endpoint='ipc"),
    ({"buffer_steps": 0}, "buffer_steps=0"), ({"publisher": "kafka"}, "publisher='kafka'"),
    ({"endpoint": "tcp://*:1", "replay_endpoint": "tcp://*:1"}, "Give each its own"), ("{", "is not JSON"),
    ([1], "must be True, False or a dict"), (5, "must be True, False"), (True, "enable_prefix_caching=False"),
])  # fmt: skip
def test_events_that_can_not_be_published_are_refused_with_what_is_wrong(written, sentence):
    caching = {"enable_prefix_caching": False} if written is True else {}
    with pytest.raises(ConfigError, match=sentence):
        EngineConfig.from_options("m", kv_events_config=written, **caching)
