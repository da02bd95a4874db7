"""Models are loaded when used, leave when nobody needs them, never under a client, and come back from death."""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psutil
import pytest
from builders.cases import for_each
from builders.daemon import PlainClient, RunningDaemon, models, worker_of
from builders.watching import is_running, wait_until

from penstock import ConfigError, EngineDeadError, OutOfMemoryError, SamplingParams
from penstock.frontend.console import logs
from penstock.frontend.daemon.background import reload_daemon, stop_daemon
from penstock.frontend.daemon.loading import Loading
from penstock.frontend.daemon.model import DaemonModel
from penstock.frontend.daemon.settings import DaemonSettings, added_model
from penstock.frontend.models.model_files import BUNDLED
from penstock.frontend.replicas import replica
from penstock.protocol.attach import ATTACH_PROTOCOL, Attach, Attached, Declined

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)
LEAVING = models("a", "b", keep_alive=0.2)


def copied(tmp_path, name):
    shutil.copytree(BUNDLED["pocket"], tmp_path / name, copy_function=os.symlink)
    return tmp_path / name


@pytest.fixture(scope="module")
def shared(start_shared) -> RunningDaemon:
    daemon = start_shared(LEAVING)
    assert [each.state for each in daemon.status().models] == ["unloaded"] * 2, "nothing is loaded before it is used"
    return daemon


@pytest.fixture
def configured(shared) -> Callable[[str], RunningDaemon]:
    """The same daemon with another configuration; no model of the one before is used any more."""

    def configured(text: str) -> RunningDaemon:
        shared.config.write_text(text)
        reload_daemon(shared.address)
        return shared

    return configured


@pytest.fixture
def leaving(configured) -> RunningDaemon:
    daemon = configured(LEAVING)
    wait_until(lambda: [each.state for each in daemon.status().models] == ["unloaded"] * 2, "nothing is used any more")
    return daemon


def test_a_model_is_loaded_on_first_use_and_leaves_after_a_while_of_quiet(leaving):
    with leaving.attach("a") as llm:
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert (leaving.model("a").state, leaving.model("b").state) == ("ready", "unloaded")
        assert leaving.model("a").clients == 1
    children = leaving.processes()[1:]
    wait_until(lambda: leaving.model("a").state == "unloaded", "a is unloaded")
    wait_until(lambda: not any(map(is_running, children)), "its processes have ended")


def brought(daemon, model, **options):
    """Have the daemon load a model, which stays until the connection is closed; return that and the answer."""
    client = PlainClient(daemon)
    client.send(Attach(ATTACH_PROTOCOL, str(model), str(model), {"load_format": "stand-in", **options}, may_add=True))
    return client, client.hear()


def test_a_model_that_a_script_brings_is_anothers_with_the_same_options_and_nobodys_afterwards(leaving, tmp_path):
    daemon, folder = leaving, copied(tmp_path, "own")
    clients, told = zip(
        brought(daemon, folder, tokenizer="/nowhere"),
        brought(daemon, folder),
        brought(daemon, folder, watchdog_timeout=7),
        brought(daemon, folder, max_model_len=128),
        brought(daemon, "pocket", max_model_len=64),  # which the owner's is made from
    )
    assert isinstance(told[0], Declined) and isinstance(told[4], Declined)
    assert [each.model for each in told[1:4]] == ["own", "own", "own-2"]
    assert {model.name for model in daemon.status().models} == {"a", "b", "own", "own-2"}
    for client in clients:
        client.close()
    wait_until(lambda: [model.name for model in daemon.status().models] == ["a", "b"], "nobody uses them")
    client, again = brought(daemon, folder)
    assert isinstance(again, Attached)
    client.close()


@for_each("option", ["reasoning_parser_plugin", "tool_parser_plugin", "logits_processors", "trace", "record"])
def test_a_model_that_a_script_brings_runs_no_code_and_writes_no_file_of_its_choice(option):
    with pytest.raises(ConfigError, match=f"{option} can be given in the daemon's own configuration only"):
        added_model("m", "pocket", {option: "/tmp/mine"}, 1.0)


def test_a_name_that_the_owner_takes_over_is_the_owners_for_good(leaving, tmp_path):
    client, _ = brought(leaving, copied(tmp_path, "owned"))
    leaving.config.write_text(models("a", "b", "owned", keep_alive=0.2))
    assert reload_daemon(leaving.address) == "owned changed"
    client.close()
    with leaving.attach("owned"):
        pass
    wait_until(lambda: leaving.model("owned").state == "unloaded", "it is unloaded, and known")


def test_a_model_in_use_is_never_taken_away_for_another_which_waits_for_that_use_to_end(configured):
    settings = {"keep_alive": "inf", "max_loaded": 1}
    daemon = configured(models("a", "b", load_wait=0.3, **settings))
    first = daemon.attach("a")
    with pytest.raises(OutOfMemoryError, match=r"b does not fit .* would have to go: a \(1 in use\)"):
        daemon.attach("b")
    assert first.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
    configured(models("a", "b", load_wait=600, **settings))
    with ThreadPoolExecutor(1) as thread:
        second = thread.submit(daemon.attach, "b")
        wait_until(lambda: daemon.model("b").state == "loading", "b wants to be loaded")
        first.close()  # a is idle now, and gives way at once
        with second.result(60):
            assert [daemon.model(name).state for name in "ab"] == ["unloaded", "ready"]


def test_of_idle_models_the_one_gives_way_that_was_used_longest_ago():
    gone = []

    def model(name, last_used, *, is_idle=True):
        return SimpleNamespace(session=object(), is_idle=is_idle, last_used=last_used, unload=lambda: gone.append(name))

    every = [model("in use", 0.0, is_idle=False), model("later", 2.0), model("first", 1.0), model("last", 3.0)]
    asyncio.run(Loading(DaemonSettings(), lambda: every)._make_room(None, "", 0.0))
    assert gone == ["first"]


READ = [
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("chat_template.jinja", "chat_template.json", "additional_chat_templates/other.jinja"),
]


def test_a_model_that_cannot_be_loaded_says_why_and_holds_up_nobody(configured, tmp_path):
    """One that is nowhere, and folders with a pipe where a file is read."""
    config = models("a") + '[models.none]\nmodel = "/nowhere/at/all"\n'
    for name in READ:
        folder = copied(tmp_path, name.replace("/", "-"))
        (folder / "chat_template.jinja").unlink()
        (folder / name).unlink(missing_ok=True)
        (folder / name).parent.mkdir(exist_ok=True)
        os.mkfifo(folder / name)
        config += models(folder.name.replace(".", "-")).replace('"pocket"', f'"{folder}"')
    daemon = configured(config)
    for name in READ:
        with pytest.raises(ConfigError, match=f"{name} cannot be used: it is a pipe"):
            daemon.attach(name.replace("/", "-").replace(".", "-"))
    with pytest.raises(FileNotFoundError, match="No model .* was found"):
        daemon.attach("none")
    with daemon.attach("a"):
        assert daemon.model("none").state == "failed"


def test_a_model_that_cannot_come_back_is_tried_again_after_pauses_until_it_can(configured, tmp_path):
    folder = copied(tmp_path, "model")
    daemon = configured(models("a").replace('"pocket"', f'"{folder}"'))
    with daemon.attach("a") as llm:
        folder.rename(tmp_path / "away")
        os.kill(worker_of(daemon), signal.SIGKILL)
        wait_until(lambda: "was found" in daemon.model("a").error, "it cannot come back")
        with pytest.raises(FileNotFoundError):
            llm.generate([[1, 2]], PARAMS, use_tqdm=False)
        (tmp_path / "away").rename(folder)
        wait_until(lambda: daemon.model("a").state == "ready", "it has come back")
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200


def test_a_client_stays_with_the_files_that_its_model_had_when_it_attached(configured, tmp_path):
    folder = copied(tmp_path, "model")
    daemon = configured(models("a").replace('"pocket"', f'"{folder}"'))
    with daemon.attach("a") as llm:
        shutil.copy(folder / "config.json", tmp_path)
        os.replace(tmp_path / "config.json", folder / "config.json")
        os.kill(worker_of(daemon), signal.SIGKILL)
        wait_until(lambda: daemon.model("a").restarts == 1, "its death is seen")
        with pytest.raises(EngineDeadError, match="files that have changed"):
            llm.generate([[1, 2]], PARAMS, use_tqdm=False)
        with daemon.attach("a") as other:
            assert other.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200


def test_a_model_that_is_long_in_coming_holds_up_nobody_else_nor_the_end(start, monkeypatch):
    """Its hub takes the connection, and says nothing."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        daemon = start(models("a") + '[models.far]\nmodel = "far/away"\npreload = true\n')
        hub.settimeout(60)
        asks, _ = hub.accept()
        with asks, daemon.attach("a") as llm:
            assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
            assert daemon.model("far").state == "loading"
            process = psutil.Process(daemon.status().pid)
            stop_daemon(daemon.address, 0.0)
            process.wait(60)  # the hub's own patience has no end


def test_a_preload_that_dies_is_tried_again_and_one_that_is_refused_is_said(start, monkeypatch, tmp_path):
    (tmp_path / "refused").mkdir()
    monkeypatch.setenv("PENSTOCK_FAULTS", f"worker.start=until:{tmp_path / 'go'}")
    daemon = start(models("a", more="preload = true") + f'[models.b]\nmodel = "{tmp_path}/refused"\npreload = true\n')
    wait_until(lambda: daemon.model("a").state == "loading" and len(daemon.processes()) > 1, "it is loading")
    os.kill(worker_of(daemon), signal.SIGKILL)
    (tmp_path / "go").touch()
    wait_until(lambda: daemon.model("a").state == "ready", "it is loaded again by itself")
    said = logs.daemon_log(daemon.address).read_text()
    assert "a could not be loaded: The worker 0 process" in said and "b could not be loaded: " in said
    assert daemon.model("b").state == "failed"


SETTINGS = SimpleNamespace(name="m", keep_alive=float("inf"), preload=False)


def session():
    transport = SimpleNamespace(error=None, close=lambda: None, on_death=None)
    door, adapters = SimpleNamespace(), SimpleNamespace(loaded={})
    return SimpleNamespace(
        transport=transport, adapters=adapters, door=door, stamps=frozenset(), close_helpers=lambda: None
    )


@for_each("ends_by, life, pauses", [("unloading", 0.0, True), ("unloading", 1e6, False), ("death", 1e6, False)])
def test_deaths_before_a_long_life_are_not_in_a_row_with_those_after_it(monkeypatch, ends_by, life, pauses):
    monkeypatch.setattr(replica, "_FIRST_PAUSE", 0.001)
    deaths = iter([True] * 4)

    async def opened(model):
        if next(deaths, False):
            raise EngineDeadError("x")
        return session()

    async def live():
        model = DaemonModel(SETTINGS, opened)
        for _ in range(4):
            with pytest.raises(EngineDeadError):
                await model.ready()
        alive = await model.ready()
        model._ready_since -= life
        if ends_by == "unloading":
            await model.unload()
        else:
            model._died(alive.transport, EngineDeadError("x"))
        assert (model._pause() > 0) is pauses

    asyncio.run(live())


def test_a_load_for_nobody_comes_to_its_end_where_nothing_is_kept():
    """A start that waited for the session itself would load it again and again."""
    loads = []

    async def opened(model):
        loads.append(model)
        return session()

    async def live():
        model = DaemonModel(SimpleNamespace(name="m", keep_alive=0.0, preload=True), opened)
        await asyncio.wait_for(asyncio.gather(model.load_once(), model.load_once()), 60)
        while model.is_held:
            await asyncio.sleep(0)
        assert model.state == "unloaded" and len(loads) == 1

    asyncio.run(live())


@for_each("is_stale", [True, False])
def test_a_model_whose_settings_have_changed_leaves_with_its_last_user(is_stale):
    async def opened(model):
        return session()

    async def live():
        model = DaemonModel(SETTINGS, opened)
        model.lease()
        await model.ready()
        model.is_stale = is_stale
        model.release()
        assert (model._timer is not None) is is_stale
        while is_stale and model.is_held:
            await asyncio.sleep(0)
        assert model.state == ("unloaded" if is_stale else "ready")

    asyncio.run(asyncio.wait_for(live(), 60))
