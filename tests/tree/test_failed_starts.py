"""A start that fails after its first process ends the whole tree: nothing is left to pile up."""

import asyncio
import os
import shutil
import threading

import pytest
from builders.cases import for_each
from builders.starts import STAND_IN, processes_of
from builders.watching import wait_until

from penstock import LLM, ConfigError, SamplingParams
from penstock.frontend.cli import main
from penstock.frontend.console.logs import log_folder
from penstock.frontend.models.generation_config import default_params
from penstock.frontend.session import private
from penstock.frontend.session.tree import transport
from penstock.frontend.text import tokenizer
from penstock.protocol.processes import process
from penstock.protocol.processes.runtime_directory import runtime_base

INVALID = {
    "a word": '{"temperature": "hot"}',
    "an object": '{"top_k": {}}',
    "a fraction": '{"top_k": 1.5}',
    "a truth": '{"min_p": true}',
    "nothing that is a number": '{"repetition_penalty": NaN}',
    "a huge number": '{"temperature": 1e999}',
    "a word for a truth": '{"do_sample": "no"}',
    "a word that ends": '{"eos_token_id": "</s>"}',
    "a list of lists that end": '{"eos_token_id": [[1]]}',
    "a number as the whole": "7",
    "no JSON": "{temperature: 1}",
    "no UTF-8": b'{"a": "\xff"}',
    "half a character": '{"temperature": "\\ud800"}',
    "no end": '{"a":' * 100_000,
}


def own_processes() -> set[int]:
    return set(processes_of(runtime_base()))


@pytest.fixture(autouse=True)
def leaves_no_process():
    before, descriptors = own_processes(), len(os.listdir("/proc/self/fd"))
    yield
    wait_until(lambda: own_processes() <= before, "what was started has ended")
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 8, "nor does it keep descriptors"


@pytest.fixture
def invalid_model(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "invalid")
    (folder / "generation_config.json").write_text('{"temperature": -1}')
    return folder


@for_each("content", INVALID.values(), ids=INVALID.keys())
def test_a_generation_config_that_cannot_be_meant_is_named(content, tmp_path):
    path = tmp_path / "generation_config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match="generation_config.json cannot be used"):
        default_params(tmp_path)


def test_one_that_can_be_meant_is_taken_and_a_folder_of_its_name_is_not(tmp_path):
    path = tmp_path / "generation_config.json"
    for content in ("{}", '{"temperature": null, "eos_token_id": [1, 2]}', '{"do_sample": false}'):
        path.write_text(content)
        assert default_params(tmp_path).temperature == (0.0 if "do_sample" in content else SamplingParams().temperature)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="generation_config.json cannot be used"):
        default_params(tmp_path)


def test_an_invalid_generation_config_is_an_error_before_anything_is_loaded(invalid_model, monkeypatch, capsys):
    monkeypatch.setattr(private, "TreeTransport", lambda *_: pytest.fail("loads"))
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(invalid_model.parent / "logs"))
    before = own_processes()
    for _ in range(3):
        with pytest.raises(ConfigError, match="generation_config.json cannot be used: temperature=-1"):
            LLM(invalid_model, **STAND_IN, quiet=True)
    for words in (["generate", str(invalid_model), "x"], ["chat", str(invalid_model)]):
        assert main(words) == 1
        assert "generation_config.json cannot be used" in capsys.readouterr().err
    assert own_processes() <= before, "the processes that waited for a model have ended"
    assert not list(log_folder().glob("*.log")), "and left no log"


def fails(*_: object, **__: object) -> None:
    raise OSError("as if a terminal had been closed")


# Where a start may fail once children run, and the error that is made there. The table fails where the door does.
PLACES = {
    "the door": (private, "Door"),
    "the tokenizer": (tokenizer, "Tokenizer"),
    "the adapters": (private, "Adapters"),
    "the wake-up pipe": (transport.os, "pipe"),
    "a child's descriptor": (process.os, "pidfd_open"),
    "the reading thread": (threading.Thread, "start"),
}


@pytest.mark.parametrize("place", PLACES)
def test_wherever_a_start_fails_its_tree_ends(place, monkeypatch, model_folder):
    before = own_processes()
    # The error is kept, as by a debugger or a log: nothing may depend on its being forgotten.
    with monkeypatch.context() as broken, pytest.raises(OSError, match="as if a terminal") as kept:
        broken.setattr(*PLACES[place], fails)
        LLM(model_folder, **STAND_IN, quiet=True)
    wait_until(lambda: own_processes() <= before, "the tree has ended")
    del kept


def test_a_daemon_whose_adapters_cannot_be_loaded_again_lets_its_tree_go(monkeypatch):
    from penstock.frontend.daemon import loading
    from penstock.frontend.daemon.settings import DaemonSettings, added_model

    class Model:
        name, adapters = "pocket", {"a": "/nowhere"}
        settings = added_model("pocket", "pocket", STAND_IN, 1.0)

    monkeypatch.setattr(loading, "_load_again", fails)
    before = own_processes()

    async def loaded() -> None:
        await loading.Loading(DaemonSettings(), list).open(Model())

    with pytest.raises(OSError, match="as if a terminal"):
        asyncio.run(loaded())
    wait_until(lambda: own_processes() <= before, "the tree has ended")
