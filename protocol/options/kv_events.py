"""The option `kv_events_config`: whether and where a tree publishes which KV blocks can be found in its cache.

    {"endpoint": "tcp://127.0.0.1:5557", "token_ids": true}

The keys are vLLM's, and `token_ids` is ours: tokens are prompts in clear, so they are published only on request. The
events themselves are in `engine/memory/events.py`.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..errors import ConfigError
from ..fields.described import described, rules_of
from ..fields.rules import BOOLEAN, Rule, json_value, shown, text, whole
from ..fields.suggestion import suggestion

NAME = "kv_events_config"
SENTENCE = 'must be True, False or a dict such as {"endpoint": "tcp://127.0.0.1:5557", "token_ids": true}'
_PUBLISHERS = ("zmq", "null")
_SOCKET_PATH_BYTES = 107  # the longest path of a unix socket
_TCP = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.%\w]+\]|[\w.-]+):(\d{1,5})", re.ASCII)


def _address(value: Any) -> str:
    # A socket binds to numbers only.
    address = text(value).replace("tcp://localhost:", "tcp://127.0.0.1:")
    found = _TCP.fullmatch(address)
    if found is not None and 0 < int(found[2]) < 65536:
        return address
    path = address.removeprefix("ipc://")
    if path == address or not path.startswith("/") or "\0" in path or len(path.encode()) > _SOCKET_PATH_BYTES:
        raise ValueError
    return address


_ADDRESS = Rule(
    _address,
    lambda value: True,
    "must be an address such as tcp://127.0.0.1:5557 or ipc:///path/to/socket, a path of at most "
    f"{_SOCKET_PATH_BYTES} bytes",
)
_PUBLISHER = Rule(text, _PUBLISHERS.__contains__, "must be zmq or null", _PUBLISHERS)
_TOPIC = Rule(text, lambda value: len(value.encode()) <= 1024, "must be text of at most 1,024 bytes")


class KvEventsConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a tree publishes its KV events. `as_kv_events` makes one from a caller's value."""

    enable_kv_cache_events: Annotated[bool, described("whether to publish at all", BOOLEAN)] = True
    publisher: Annotated[str, described("zmq, or null for none", _PUBLISHER)] = "zmq"
    endpoint: Annotated[str, described("address of the publishing socket", _ADDRESS)] = "tcp://127.0.0.1:5557"
    replay_endpoint: Annotated[str | None, described("address for requests to repeat events", _ADDRESS)] = None
    buffer_steps: Annotated[int, described("latest batches that can be repeated", whole(1, 1_000_000))] = 10_000
    hwm: Annotated[int, described("batches kept for a subscriber that reads slowly", whole(1, 10_000_000))] = 100_000
    max_queue_size: Annotated[int, described("batches that wait to be sent", whole(1, 10_000_000))] = 100_000
    topic: Annotated[str, described("first frame of each message, which subscribers filter by", _TOPIC)] = ""
    token_ids: Annotated[bool, described("publish the tokens of blocks: prompts in clear", BOOLEAN)] = False
    rank: int = 0  # of the tree among several of one model, as its events tell it; no option of a caller's

    def of_rank(self, rank: int) -> "KvEventsConfig":
        """The same for one of several trees: ports grow by its rank, and paths get it as a suffix."""
        if rank == 0:
            return self
        addresses = {name: getattr(self, name) for name in ("endpoint", "replay_endpoint")}
        moved = {name: _moved(name, each, rank) for name, each in addresses.items() if each is not None}
        return msgspec.structs.replace(self, rank=rank, **moved)

    def check_trees(self, count: int) -> None:
        """Raise if two sockets of this many trees would have one address."""
        trees = [self.of_rank(rank) for rank in range(count)]
        repeated = {tree.endpoint for tree in trees} & {tree.replay_endpoint for tree in trees}
        if address := min(repeated, default=None):
            raise ConfigError(
                f"{NAME}: {address} is the endpoint of one tree and the replay_endpoint of another, since each tree's "
                f"addresses follow those of the one before. With data_parallel_size={count} give ports that are at "
                f"least {count} apart, or paths of other names."
            )


def _moved(name: str, address: str, rank: int) -> str:
    is_tcp = address.startswith("tcp://")
    host, _, port = address.rpartition(":")
    try:
        return _address(f"{host}:{int(port) + rank}" if is_tcp else f"{address}.{rank}")
    except ValueError:
        if is_tcp:
            wrong = f"leaves no port for tree {rank}. Give a lower one."
        else:
            wrong = f"leaves no room for tree {rank}, whose path ends with .{rank}. Give a shorter one."
        raise ConfigError(f"{NAME}: {name}={shown(address)} {wrong}") from None


_RULES = rules_of(KvEventsConfig)


def as_kv_events(value: Any) -> KvEventsConfig | None:
    """Convert a caller's value; None: nothing is published. Raises ConfigError for a wrong key, and ValueError or
    TypeError for a value of another type."""
    if isinstance(value, KvEventsConfig):
        return value
    given = _as_mapping(value)
    for key in given:
        if key not in _RULES:
            raise ConfigError(f"{NAME} has no key {shown(key)}.{suggestion(key, _RULES)}")
    fields = {key: _RULES[key].checked(f"{NAME}: {key}", each, ConfigError) for key, each in given.items()}
    config = KvEventsConfig(**fields)
    if config.endpoint == config.replay_endpoint:
        raise ConfigError(f"{NAME}: endpoint and replay_endpoint are both {config.endpoint}. Give each its own.")
    return config if config.enable_kv_cache_events and config.publisher != "null" else None


def _as_mapping(value: Any) -> dict[str, Any]:
    """What is given, by key; None counts as not given."""
    if isinstance(value, bool):
        return {"enable_kv_cache_events": value}
    if isinstance(value, str):
        value = _CONSTANTS.get(text(value).casefold(), value)
        value = _from_text(value) if isinstance(value, str) else {"enable_kv_cache_events": value}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):  # vLLM's own KVEventsConfig
        value = dataclasses.asdict(value)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError
    return {key: each for key, each in value.items() if each is not None}


# Python's and JSON's words, as text.
_CONSTANTS = {"true": True, "false": False}


def _from_text(words: str) -> Any:
    try:
        return json_value(words)
    except ValueError as error:
        raise ConfigError(f"{NAME}={shown(words)} is not JSON: {error}.") from None
