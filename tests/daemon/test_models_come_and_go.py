"""Models are loaded when used, leave when nobody needs them, never under a client, and come back from death."""

import os
import shutil
import signal
import socket
import threading

import psutil
import pytest
from builders.daemon import models, process_of, wait_for, worker_of
from builders.plain_client import PlainClient
from builders.watching import is_running

from penstock import ConfigError, EngineDeadError, OutOfMemoryError, PenstockError, SamplingParams
from penstock.frontend.console import logs
from penstock.frontend.daemon.background import reload_daemon, stop_daemon
from penstock.frontend.models.model_files import BUNDLED
from penstock.protocol.attach import ATTACH_PROTOCOL, Attach, Attached, Declined

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)
LONG = SamplingParams(max_tokens=900, ignore_eos=True)


def slow_steps(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")


def test_a_model_is_loaded_on_first_use_and_leaves_after_a_while_of_quiet(start):
    daemon = start(models("a", "b", keep_alive=0.2))
    assert [daemon.model(name).state for name in ("a", "b")] == ["unloaded", "unloaded"]
    with daemon.attach("a") as llm:
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert (daemon.model("a").state, daemon.model("b").state) == ("ready", "unloaded")
        assert daemon.model("a").clients == 1
    children = daemon.processes()[1:]
    wait_for(lambda: daemon.model("a").state == "unloaded", "a is unloaded")
    wait_for(lambda: not any(map(is_running, children)), "its processes have ended")


def test_a_model_in_use_is_never_taken_away_for_another(start):
    daemon = start(models("a", "b", keep_alive="inf", max_loaded=1, load_wait=0.3))
    with daemon.attach("a") as llm:
        with pytest.raises(OutOfMemoryError, match=r"b does not fit .* would have to go: a \(1 in use\)"):
            daemon.attach("b")
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
    with daemon.attach("b"):  # a is idle now, and gives way at once
        assert daemon.model("a").state == "unloaded"


def test_a_load_that_does_not_fit_waits_for_a_lease_to_end(start):
    daemon = start(models("a", "b", keep_alive="inf", max_loaded=1, load_wait=20))
    first = daemon.attach("a")
    second = []
    waiting = threading.Thread(target=lambda: second.append(daemon.attach("b")))
    waiting.start()
    wait_for(lambda: daemon.model("b").state == "loading", "b wants to be loaded")
    first.close()
    waiting.join(20)
    assert second and daemon.model("b").state == "ready"
    second[0].close()


def test_a_worker_that_dies_fails_what_ran_and_later_requests_are_served(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a"))
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        os.kill(worker_of(daemon), signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="worker"):
            list(stream)
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert daemon.model("a").restarts == 1


@pytest.mark.long
def test_a_tree_that_keeps_dying_is_started_again_after_longer_and_longer_pauses(start):
    daemon = start(models("a"))
    with daemon.attach("a") as llm:
        for restarts in (1, 2, 3):
            os.kill(worker_of(daemon), signal.SIGKILL)
            wait_for(lambda: daemon.model("a").restarts == restarts, "its death was seen")  # noqa: B023
            took = wait_for(lambda: daemon.model("a").state == "ready", "it is started again")
        assert took > 0.5 and llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200


def test_a_model_that_cannot_come_back_is_tried_again_after_pauses_until_it_can(start, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED["pocket"], folder)
    daemon = start(models("a").replace('"pocket"', f'"{folder}"'))
    with daemon.attach("a") as llm:
        folder.rename(tmp_path / "away")
        os.kill(worker_of(daemon), signal.SIGKILL)
        wait_for(lambda: "was found" in daemon.model("a").error, "it cannot come back")
        with pytest.raises(FileNotFoundError):
            llm.generate([[1, 2]], PARAMS, use_tqdm=False)
        (tmp_path / "away").rename(folder)
        wait_for(lambda: daemon.model("a").state == "ready", "it has come back")
        assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200


def test_a_model_that_cannot_be_loaded_says_why_and_the_daemon_goes_on(start):
    daemon = start(models("a") + '[models.none]\nmodel = "/nowhere/at/all"\n')
    with pytest.raises(FileNotFoundError, match="No model .* was found"):
        daemon.attach("none")
    with daemon.attach("a"):
        assert daemon.model("none").state == "failed"


READ = [
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("chat_template.jinja", "chat_template.json", "additional_chat_templates/other.jinja"),
]


def test_a_folder_with_a_pipe_where_a_file_is_read_is_refused_and_holds_up_nobody(start, tmp_path):
    config = models("a")
    for name in READ:
        folder = copied(tmp_path, name.replace("/", "-"))
        (folder / "chat_template.jinja").unlink()
        (folder / name).unlink(missing_ok=True)
        (folder / name).parent.mkdir(exist_ok=True)
        os.mkfifo(folder / name)
        config += models(folder.name.replace(".", "-")).replace('"pocket"', f'"{folder}"')
    daemon = start(config)
    for name in READ:
        with pytest.raises(ConfigError, match=f"{name} cannot be used: it is a pipe"):
            daemon.attach(name.replace("/", "-").replace(".", "-"))
    with daemon.attach("a"):
        pass


def test_a_model_that_is_long_in_coming_holds_up_nobody_else_nor_the_end(start, monkeypatch):
    """Its hub takes the connection, and says nothing."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        daemon = start(models("a") + '[models.far]\nmodel = "far/away"\npreload = true\n')
        hub.settimeout(20)
        asks, _ = hub.accept()
        with asks, daemon.attach("a") as llm:
            assert llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].error_code == 200
            assert daemon.model("far").state == "loading"
            process = psutil.Process(daemon.status().pid)
            stop_daemon(daemon.address, 0.0)
            process.wait(8)  # the hub's own patience is longer


def copied(tmp_path, name):
    shutil.copytree(BUNDLED["pocket"], tmp_path / name)
    return tmp_path / name


def brought(daemon, model, **options):
    """What a script is told that has the daemon load a model; it stays until its connection is closed."""
    client = PlainClient(daemon)
    client.send(Attach(ATTACH_PROTOCOL, str(model), str(model), {"load_format": "stand-in", **options}, may_add=True))
    return client, client.hear()


def test_a_model_that_a_script_brings_is_another_scripts_with_the_same_options_and_nobodys_afterwards(start, tmp_path):
    daemon, folder = start(models("a", keep_alive=0)), copied(tmp_path, "own")
    clients, told = zip(
        brought(daemon, folder, tokenizer="/nowhere"),
        brought(daemon, folder),
        brought(daemon, folder, watchdog_timeout=7),
        brought(daemon, folder, max_model_len=128),
        brought(daemon, "pocket", max_model_len=64),  # which the owner's is made from
    )
    assert isinstance(told[0], Declined) and isinstance(told[4], Declined)
    assert [each.model for each in told[1:4]] == ["own", "own", "own-2"]
    assert {model.name for model in daemon.status().models} == {"a", "own", "own-2"}
    for client in clients:
        client.close()
    wait_for(lambda: [model.name for model in daemon.status().models] == ["a"], "nobody uses them")
    assert isinstance(brought(daemon, folder)[1], Attached)


def test_a_name_that_the_owner_takes_over_is_the_owners_for_good(start, tmp_path):
    daemon = start(models("a", keep_alive=0))
    client, _ = brought(daemon, copied(tmp_path, "own"))
    daemon.config.write_text(models("a", "own", keep_alive=0))
    assert reload_daemon(daemon.address) == "own changed"
    client.close()
    with daemon.attach("own"):
        pass
    wait_for(lambda: daemon.model("own").state == "unloaded", "it is unloaded, and known")


def test_a_configuration_is_read_again_without_dropping_anyone(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a", "b"))
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True))
        next(stream)
        daemon.config.write_text(models("a", "c").replace("1024", "512"))
        assert reload_daemon(daemon.address) == "b removed, a changed, c added"
        assert list(stream)[-1].finished  # on the old one
        with daemon.attach("a") as other:
            assert other._session.attached.plan.max_model_len == 512
        assert {model.name for model in daemon.status().models} == {"a", "c"}
    wait_for(lambda: len(daemon.status().models) == 2, "the old one has left")
    daemon.config.write_text("[models.a]\nmodel = 3.5\nblock_size = 1\n")
    with pytest.raises(ConfigError, match="block_size=1"):
        reload_daemon(daemon.address)
    with daemon.attach("c"):  # nothing has changed
        pass


def test_a_shutdown_lets_what_runs_end_and_takes_nothing_new(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a"))
    children = []
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True))
        next(stream)
        children += daemon.processes()
        stopping = threading.Thread(target=stop_daemon, args=(daemon.address, 20.0))
        stopping.start()
        wait_for(lambda: daemon.status().is_draining, "it shuts down")
        with pytest.raises(ConfigError, match="shutting down"):
            daemon.attach("a")
        assert list(stream)[-1].error_code == 200
        stopping.join(20)
        with pytest.raises(EngineDeadError, match="has ended or closed the connection"):
            llm.generate([[1]], PARAMS, use_tqdm=False)
    wait_for(lambda: not any(map(is_running, children)), "nothing is left")


def test_a_shutdown_has_a_deadline(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a"))
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        stop_daemon(daemon.address, 0.1)
        with pytest.raises(Exception, match="closed|ended"):
            list(stream)


def test_requests_have_as_long_as_the_owner_has_set_and_are_told_what_ended_them(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon, said = start(models("a", drain=0.2)), []
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        stop_daemon(daemon.address, say=said.append)
        with pytest.raises(PenstockError, match="[Dd]aemon"):
            list(stream)
    assert said == ["Requests that run: 1; they have 0.2 s to end."]


def test_a_daemon_that_ends_at_once_has_answered_before_and_so_says_nothing_of_a_lost_connection(start):
    daemon, said = start(models("a")), []
    with daemon.attach("a"):
        os.kill(process_of(daemon, "penstock.engine"), signal.SIGSTOP)  # it would be asked for its statistics
        stop_daemon(daemon.address, 0.0, said.append)
    assert said == []


def test_a_preload_that_dies_is_tried_again_and_one_that_is_refused_is_said(start, monkeypatch, tmp_path):
    (tmp_path / "refused").mkdir()
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=delay:1")
    daemon = start(models("a", more="preload = true") + f'[models.b]\nmodel = "{tmp_path}/refused"\npreload = true\n')
    wait_for(lambda: daemon.model("a").state == "loading" and len(daemon.processes()) > 1, "it is loading")
    os.kill(worker_of(daemon), signal.SIGKILL)
    wait_for(lambda: daemon.model("a").state == "ready", "it is loaded again by itself")
    said = logs.daemon_log().read_text()
    assert "a could not be loaded: The worker 0 process" in said and "b could not be loaded: " in said
    assert daemon.model("b").state == "failed"


def test_a_shutdown_during_a_load_ends_it_and_tells_who_waits(start, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=delay:10")
    daemon = start(models("a"))
    told = []

    def attach():
        with pytest.raises(PenstockError) as raised:
            daemon.attach("a")
        told.append(str(raised.value))

    waiting = threading.Thread(target=attach)
    waiting.start()
    wait_for(lambda: daemon.model("a").state == "loading", "it is loading")
    stop_daemon(daemon.address, 0.0)
    waiting.join(20)
    assert told and ("shutting down" in told[0] or "closed the connection" in told[0])


def test_a_killed_daemon_takes_its_processes_along_and_its_clients_are_told(start, monkeypatch):
    slow_steps(monkeypatch)
    daemon = start(models("a"))
    with daemon.attach("a") as llm:
        stream = llm.stream([1, 2, 3], LONG)
        next(stream)
        processes = daemon.processes()
        os.kill(processes[0], signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="The daemon at"):
            list(stream)
        wait_for(lambda: not any(map(is_running, processes)), "nothing is left", 3.0)
    daemon.address.unlink()


def test_an_idle_daemon_uses_next_to_nothing(start):
    daemon = start(models("a", "b", keep_alive="inf"))
    with daemon.attach("a"), daemon.attach("b"):
        processes = daemon.processes()
        before = sum(map(ticks, processes))
        threading.Event().wait(1.0)
        assert sum(map(ticks, processes)) - before <= 2  # hundredths of a second


def ticks(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
