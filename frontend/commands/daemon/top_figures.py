"""The figures of `penstock top`, and where they come from: a daemon's socket, or the HTTP address of any server.

Counters are read twice, and the difference is what happened between. Requests come over HTTP only, where each user
sees and stops their own.
"""

import http.client
import json
import re
import ssl
import time
import urllib.parse
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from ....protocol.errors import PenstockError
from ....protocol.fields.rules import shown
from ....protocol.stats import Stats
from ...daemon.background import line_to, status_of
from ...http.metrics import OF_THE_ENGINE

Figures = dict[str, float]  # of one model, or one of its trees, by the names that `/metrics` has for them
Whose = tuple[str, int | None]  # a model, and the number of one of its trees

_ANSWER_SECONDS = 10.0
_LONGEST_REPLY = 64 << 20
_SAMPLE = re.compile(r'penstock_(?:replica_)?(\w+)\{model="((?:[^"\\]|\\.)*)"(?:,replica="(\d+)")?\} (\S+)')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class _Ready(msgspec.Struct):
    """The part of a reply of `/ready` that is shown."""

    models: dict[str, str]


class _Request(msgspec.Struct):
    id: str
    state: str
    model: str
    endpoint: str
    seconds: float
    prompt_tokens: int
    generated_tokens: int


class _Requests(msgspec.Struct):
    """The part of a reply of `/v1/requests` that is shown."""

    data: list[_Request]


class Look(NamedTuple):
    """The models and requests at one moment."""

    time: float  # seconds
    states: dict[str, str]  # of each model
    figures: dict[Whose, Figures]  # of each loaded model, and of each of its trees where it has several
    requests: list[dict[str, Any]] | None  # as `/v1/requests` describes them; None: nobody can tell


class Row(NamedTuple):
    """One model, or one of its trees, between two looks; None: not known, or nothing happened."""

    model: str
    tree: int | None
    state: str
    out_per_second: float | None
    in_per_second: float | None
    running: int | None
    waiting: int | None
    kv_usage: float | None
    hits: float | None  # share of prompt tokens found in the prefix cache
    acceptance: float | None  # share of drafts
    first_token_ms: float | None
    token_ms: float | None
    step_ms: float | None


class Source(Protocol):
    name: str

    def look(self) -> Look:
        """Raises `PenstockError` if nobody answers."""

    def stop(self, request_id: str) -> None:
        """Stop a request."""


class HttpSource:
    def __init__(self, address: str, key: str | None) -> None:
        address = address if "://" in address else f"http://{address}"
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise PenstockError(f"{shown(address)} is no address of a server. Give one such as http://127.0.0.1:8000.")
        try:
            port = parts.port
        except ValueError:
            raise PenstockError(f"{shown(address)} has no valid port.") from None
        self.name = address.rstrip("/")
        self._host, self._port, self._path = parts.hostname, port, parts.path.rstrip("/")
        self._is_secure = parts.scheme == "https"
        self._headers = {"User-Agent": "penstock-top"} | ({} if key is None else {"Authorization": f"Bearer {key}"})

    def look(self) -> Look:
        text = self._asked("GET", "/metrics").decode(errors="replace")
        if "\npenstock_" not in f"\n{text}":
            raise PenstockError(f"{self.name} is no server of Penstock's: its /metrics has no figure named penstock_….")
        figures = figures_of(text)
        states = dict.fromkeys((model for model, tree in figures if tree is None), "ready")
        with suppress(PenstockError, ValueError):  # a server of another kind, or an older one
            found = msgspec.json.decode(self._asked("GET", "/ready", may_fail=True), type=_Ready).models
            states |= {name: "ready" if state == "ok" else state for name, state in found.items()}
        requests = None
        with suppress(PenstockError, ValueError):
            reply = self._asked("GET", "/v1/requests")
            msgspec.json.decode(reply, type=_Requests)
            requests = json.loads(reply)["data"]
        return Look(time.monotonic(), states, figures, requests)

    def stop(self, request_id: str) -> None:
        self._asked("DELETE", "/v1/requests/" + urllib.parse.quote(request_id, safe=""))

    def _asked(self, method: str, path: str, *, may_fail: bool = False) -> bytes:
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        try:
            with closing(kind(self._host, self._port, timeout=_ANSWER_SECONDS)) as connection:
                connection.request(method, self._path + path, headers=self._headers)
                reply = connection.getresponse()
                body = reply.read(_LONGEST_REPLY)
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            raise PenstockError(f"{self.name} does not answer: {error or type(error).__name__}.") from error
        if reply.status == 401:
            raise PenstockError(f"{self.name} wants an API key: give --api-key-file FILE, or set PENSTOCK_API_KEY.")
        if reply.status != 200 and not may_fail:
            raise PenstockError(f"{self.name}{path} answers with status {reply.status}.")
        return body


class SocketSource:
    """The daemon of this user. What it serves over HTTP comes from there, if that needs no key or one is given."""

    def __init__(self, address: Path, key: str | None) -> None:
        self.name = str(address)
        self._address, self._key = address, key
        self._http: HttpSource | None = None

    def look(self) -> Look:
        with closing(line_to(self._address)) as line:
            status = status_of(line)
        states = {model.name: model.state for model in status.models}
        figures: dict[Whose, Figures] = {}
        for model in status.models:
            if model.stats is not None:
                figures[model.name, None] = _figures_of_stats(model.stats)
                for number, each in enumerate(model.stats.replicas):
                    figures[model.name, number] = _figures_of_stats(each)
        requests = None
        if status.http:
            with suppress(PenstockError):
                self._http = HttpSource(status.http, self._key)
                served = self._http.look()
                requests = served.requests
                for whose, own in served.figures.items():
                    figures.setdefault(whose, {}).update(own)
        return Look(time.monotonic(), states, figures, requests)

    def stop(self, request_id: str) -> None:
        if self._http is None:
            raise PenstockError("Requests can be stopped over HTTP only, and this daemon serves none.")
        self._http.stop(request_id)


def _figures_of_stats(stats: Stats) -> Figures:
    return {name: float(found(stats)) for name, _, _, found in OF_THE_ENGINE}


def figures_of(text: str) -> dict[Whose, Figures]:
    """The figures of each model in a reply of `/metrics`, and of its trees."""
    found: dict[Whose, Figures] = {}
    for line in text.splitlines():
        if (sample := _SAMPLE.fullmatch(line)) is not None:
            model = re.sub(r'\\[\\"n]', lambda each: _ESCAPED[each[0]], sample[2])
            with suppress(ValueError):
                whose = (model, None if sample[3] is None else int(sample[3]))
                found.setdefault(whose, {})[sample[1]] = float(sample[4])
    return {whose: own for whose, own in found.items() if "steps_total" in own}


def rows_of(before: Look | None, now: Look) -> list[Row]:
    """A row for each model, and one for each of its trees where it has several."""
    was, seconds = ({}, 0.0) if before is None else (before.figures, now.time - before.time)
    rows = []
    for name, state in now.states.items():
        whose: Whose = (name, None)
        rows.append(_row(whose, state, was.get(whose), now.figures.get(whose), seconds))
        for number in count():
            whose = (name, number)
            if (figures := now.figures.get(whose)) is None:
                break
            its_state = state if figures.get("kv_blocks") else "restarting"
            rows.append(_row(whose, its_state, was.get(whose), figures, seconds))
    return rows


def _row(whose: Whose, state: str, before: Figures | None, now: Figures | None, seconds: float) -> Row:
    if now is None:
        return Row(*whose, state, *[None] * 10)
    was = before if before is not None and before.get("steps_total", 0) <= now.get("steps_total", 0) else None

    def grown(name: str) -> float | None:
        """None if its processes were started again in between."""
        return now[name] - was[name] if was is not None and name in now and name in was else None

    def per_second(name: str) -> float | None:
        more = grown(name)
        return None if more is None or seconds <= 0 else more / seconds

    def share(part: str, whole: str, factor: float = 1.0) -> float | None:
        more, base = grown(part), grown(whole)
        return None if more is None or not base else factor * more / base

    def mean_ms(name: str) -> float | None:
        return share(f"{name}_sum", f"{name}_count", 1000)

    return Row(
        *whose,
        state,
        per_second("generated_tokens_total"),
        per_second("prompt_tokens_total"),
        int(now.get("requests_running", 0)),
        int(now.get("requests_waiting", 0)),
        now.get("kv_usage_ratio"),
        share("prefix_hit_tokens_total", "prompt_tokens_total"),
        share("accepted_tokens_total", "draft_tokens_total"),
        mean_ms("time_to_first_token_seconds"),
        mean_ms("time_between_tokens_seconds"),
        share("step_seconds_total", "steps_total", 1000),
    )
