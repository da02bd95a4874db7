"""HTTP serves what the owner of the daemon named; what scripts have added only where the owner says so, and no path."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from builders.cases import for_each
from builders.daemon import RunningDaemon, models
from builders.tiny_model import tiny_model

from penstock import (
    LLM,
    ConfigError,
    EngineDeadError,
    ModelNotFoundError,
    OutOfMemoryError,
    PenstockError,
    SamplingParams,
)
from penstock.frontend.daemon.background import reload_daemon, start_daemon, stop_daemon
from penstock.frontend.daemon.settings import read_settings
from penstock.frontend.http.answers.errors import as_api_error
from penstock.frontend.models.model_names import name_of
from penstock.protocol.processes.runtime_directory import daemon_socket

STAND_IN = {"load_format": "stand-in", "max_model_len": 256, "num_gpu_blocks_override": 32, "quiet": True}
PARAMS = SamplingParams(max_tokens=2, ignore_eos=True)
HTTP = ("--http", "127.0.0.1:0")
ROOM = "enable_lora = true\n"


class Client:
    """Remembers every word that it was told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.told = ""

    def ask(self, path: str, **body: object) -> tuple[int, str]:
        reply = httpx.request("POST" if body else "GET", self.address + path, json=body or None, timeout=60)
        self.told += f"{reply.headers}{reply.text}"
        return reply.status_code, reply.text

    def names(self) -> list[str]:
        return [card["id"] for card in json.loads(self.ask("/v1/models")[1])["data"]]

    def card(self, name: str) -> dict:
        return json.loads(self.ask(f"/v1/models/{name}")[1])

    def answers(self, model: str, **more: object) -> int:
        return self.ask("/v1/completions", model=model, prompt=[1, 2], max_tokens=2, ignore_eos=True, **more)[0]

    def look_everywhere(self, *names: str) -> None:
        for path in ("/v1/models", "/health", "/metrics", "/openapi.json", "/"):
            self.ask(path)
        for name in names:
            self.ask(f"/v1/models/{quote(name, safe='')}")
            for more in ({}, {"n": 10**9}, {"lora_name": name}, {"chat_template": name}):
                self.answers(name, **more)
            message = {"role": "user", "content": "x"}
            self.ask("/v1/chat/completions", model=name, messages=[message], max_tokens=2)
            self.ask("/v1/responses", model=name, input="x", max_output_tokens=16)
            self.ask("/tokenize", model=name, prompt="x")
            self.ask("/detokenize", model=name, tokens=[1])


@pytest.fixture
def folder(tmp_path) -> Path:
    """A path of which no part but the last may be told, hard to find in a text."""
    return tiny_model(tmp_path / "sécret place" / "whose (own)" / "tiny model", "qwen3")


@contextmanager
def daemon(*words: str) -> Iterator[Client]:
    """At the usual address, where scripts may add models."""
    start_daemon(words, daemon_socket())
    try:
        yield Client(RunningDaemon(daemon_socket()).status().http)
    finally:
        stop_daemon(daemon_socket(), 0.0)


def added(folder: Path | str) -> LLM:
    return LLM(folder, connect="start", **STAND_IN)


def test_what_scripts_add_is_an_affair_of_http_where_the_owner_says_so(folder, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(models("a", more=ROOM) + '[http]\naddress = "127.0.0.1:0"\n')
    (tmp_path / "polite").mkdir()
    with daemon("--config", str(config), *HTTP) as client, added(folder) as llm:
        with LLM("a", connect="auto", quiet=True) as owned:
            owned.load_lora("polite", tmp_path / "polite")
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert_only_the_owners(client, folder)
        config.write_text(config.read_text() + "http_added = true\n")
        assert reload_daemon(daemon_socket()) == "HTTP changed"
        assert client.names() == ["a", "polite", "tiny model"]
        assert client.answers("polite") == client.answers("tiny model") == 200
        assert client.answers("a", lora_name="polite") == 200
        assert Client(client.address).answers(str(folder)) == 404
        client.look_everywhere("tiny model")
        assert 'model="tiny model"' in client.told
        assert not leaked(client, folder)
        assert_models_are_loaded_and_unloaded(client)


def assert_models_are_loaded_and_unloaded(client: Client) -> None:
    status, words = client.ask("/models/unload", model="tiny model")
    assert (status, "client uses tiny model" in words) == (400, True), words
    assert client.ask("/models/unload", model="a") == (200, '{"success":true}')
    assert client.card("a")["is_loaded"] is False
    assert client.ask("/models/load", model="a")[0] == 200
    assert client.card("a")["is_loaded"] is True
    assert client.card("a")["default_parameters"]["top_p"] <= 1


def assert_only_the_owners(client: Client, folder: Path) -> None:
    assert Client(client.address).answers(str(folder)) == 404  # which tells it its own words
    assert client.names() == ["a"]
    assert client.ask("/models/unload", model="tiny model")[0] == client.ask("/models/load", model="polite")[0] == 404
    assert client.answers("tiny model") == client.answers("polite") == 404
    assert client.answers("a") == 200 and client.answers("a", lora_name="polite") == 400
    words = [client.ask("/v1/completions", model="a", prompt=[1], lora_name=name)[1] for name in ("polite", "none")]
    assert words[0] == words[1].replace("none", "polite")
    assert json.loads(client.ask("/health")[1])["models"] == {"a": "ok"}
    assert "polite" not in client.ask("/metrics")[1] and "tiny" not in client.ask("/metrics")[1]
    client.look_everywhere("tiny model")
    assert not leaked(client, folder)


def leaked(client: Client, folder: Path) -> list[str]:
    paths = [str(path) for path in (folder, *folder.parents) if len(path.parts) > 2]
    return [words for words in (*folder.parts[-3:-1], *paths) if words in client.told]


@for_each("model, name", [
    ("pocket", "pocket"), ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"), ("/models/private/tiny", "tiny"),
    ("/models/tiny/", "tiny"), ("./elsewhere/tiny", "tiny"), ("~/tiny", "tiny"), ("some/where/tiny", "tiny"),
    ("/", "model"),
])  # fmt: skip
def test_a_name_that_is_made_from_a_path_is_its_last_part(tmp_path, monkeypatch, model, name):
    monkeypatch.chdir(tmp_path)
    assert name_of(model) == name
    assert list(read_settings(None, [model], {}, {}, None).models) == [name]
    config = tmp_path / "c.toml"
    config.write_text(f"[models.'{model}']\n")
    settings = read_settings(config, [], {}, {}, None)
    assert list(settings.models) == [name] and settings.models[name].model == model
    with pytest.raises(ConfigError, match="Two models have the name 'tiny'"):
        read_settings(None, ["/a/tiny", "/b/tiny"], {}, {}, None)


@for_each("error", [ModelNotFoundError, ConfigError, EngineDeadError, OutOfMemoryError, PenstockError])
def test_why_a_model_cannot_be_loaded_stays_in_the_log(error):
    told = as_api_error(error("There is no config.json in /home/a b/mödels, /x, nor in ~/c"))
    assert told.status == 503
    assert "/" not in str(told)
