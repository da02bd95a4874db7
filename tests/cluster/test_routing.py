"""Which replica a request goes to, by what replicas and routers know of prefixes; without a cluster."""

import asyncio
import json
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from builders.later import Later
from hypothesis import given, settings
from hypothesis import strategies as st

routing = Later("penstock.cluster.routing")
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="RAY IS NOT TESTED: it is not installed")
TEXTS = st.text(min_size=0, max_size=900)


def chat(*texts: str, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": "pocket", "messages": messages} | fields).encode()


@settings(max_examples=40)
@given(TEXTS, TEXTS, TEXTS)
def test_requests_share_as_many_keys_as_their_texts_share_pieces(common: str, one: str, other: str) -> None:
    first, second = (routing.text_keys(json.dumps({"prompt": common + rest}).encode()) for rest in (one, other))
    shared = sum(1 for a, b in zip(first, second) if a == b)
    assert shared >= len(common) // 256
    assert [a == b for a, b in zip(first, second)] == [
        number < shared for number in range(min(len(first), len(second)))
    ]


def test_what_decides_about_blocks_before_the_text_decides_about_keys() -> None:
    text = "a text of some length " * 40
    bodies = [
        chat(text),
        chat(text, model="other"),
        chat(text, cache_salt="s"),
        chat(text, tools=[{"type": "function"}]),
    ]
    keys = [routing.text_keys(body, salt) for body in bodies for salt in ("", "Bearer key")]
    assert len({tuple(each) for each in keys}) == len(keys)
    assert len({key for each in keys for key in each}) == sum(map(len, keys))


@settings(max_examples=40)
@given(
    st.one_of(
        st.binary(max_size=200), st.recursive(st.none() | st.integers() | TEXTS, st.lists).map(repr).map(str.encode)
    )
)
def test_a_body_of_any_kind_has_keys_or_none(body: bytes) -> None:
    assert isinstance(routing.text_keys(body), list)
    assert routing.text_keys(b'{"messages": ' + body + b"}") is not None


def router(loads: dict[str, int]) -> Any:
    class Router(routing.PrefixRouter):  # without what Serve's own class needs of a cluster
        def __init__(self) -> None:
            self.initialize_state()
            self._known = {name: routing.KnownPrefixes() for name in loads}

        def _load(self, replica: Any) -> int:
            return loads[replica.replica_id]

    return Router()


def test_the_longest_known_prefix_wins_unless_its_replica_has_far_more_to_do() -> None:
    loads = {"a": 0, "b": 3, "c": 0}
    routed, replicas = router(loads), [SimpleNamespace(replica_id=name) for name in loads]
    long, short = routing.text_keys(chat("x" * 2000)), routing.text_keys(chat("x" * 600))
    routed._known["a"].add(short)
    routed._known["b"].add(long)

    def chosen(keys: list[int]) -> list[str]:
        pending = SimpleNamespace(args=[SimpleNamespace(keys=keys)])
        return [replica.replica_id for replica in asyncio.run(routed.choose_replicas(replicas, pending))[0]]

    assert chosen(long) == ["b"]
    assert chosen(short) == ["a"], "of equal ones the idlest"
    assert len(chosen([])) == 2
    loads["b"] = 40
    assert len(chosen(long)) == 2


def test_a_router_knows_what_replicas_have_answered_last_and_forgets_the_ends_of_the_oldest_prompts_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.cluster.routing._MOST_KNOWN", 10)
    monkeypatch.setattr("penstock.cluster.routing._MOST_REPORTED", 9)
    monkeypatch.setattr("ray.serve.request_router.RequestRouter.update_replicas", lambda *of: None)
    oldest, older, newest = ([100 * number + place for place in range(8)] for number in range(3))
    known, routed = routing.KnownPrefixes(), router({})

    def lengths(known: Any) -> list[int]:
        return [known.length(keys) for keys in (oldest, older, newest)]

    known.add(oldest)
    known.add(older)
    assert lengths(known) == [2, 8, 0]
    replica = SimpleNamespace(replica_id="a", routing_stats={"prefixes": known.newest()})
    routed.update_replicas([replica])
    assert lengths(routed._known["a"]) == [1, 8, 0]
    routed.on_request_routed(SimpleNamespace(args=[SimpleNamespace(keys=newest)]), "a", None)
    assert lengths(routed._known["a"]) == [0, 2, 8]
    routed.update_replicas([replica])
    assert lengths(routed._known["a"]) == [1, 8, 1], "what it has answered counts as newer than what it was sent"
    routed.update_replicas([])
    assert routed._known == {}
