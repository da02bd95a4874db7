"""Where HTTP listens and what its options are: by the command line or the configuration, and after a reload."""

import argparse
import asyncio
import http.client
import json

import httpx
import pytest
from builders.cases import for_each
from builders.daemon import models

from penstock import ConfigError, PenstockError, SamplingParams
from penstock.frontend.commands.daemon.daemon_options import add_daemon_options, settings_of
from penstock.frontend.daemon.background import reload_daemon, stop_daemon
from penstock.frontend.daemon.daemon_http import DaemonHttp
from penstock.frontend.daemon.server import Daemon
from penstock.frontend.daemon.settings import DaemonSettings, read_settings
from penstock.frontend.http.connections.server import listening_socket
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.requests.budget import Budget
from penstock.protocol.files.own_folder import HeldFolder, make_own


def settings(text, tmp_path, given=None):
    config = tmp_path / "c.toml"
    config.write_text(text)
    return read_settings(config, [], {}, {}, {} if given is None else given)


def test_the_command_line_goes_before_the_configuration_and_is_checked_as_that_is(tmp_path):
    text = '[http]\naddress = "127.0.0.1:9000"\nmax_requests = 3\n'
    options = settings(text, tmp_path, {"max_requests": 4}).http
    assert options.http == "127.0.0.1:9000" and options.max_requests == 4
    assert settings("http = false", tmp_path).http is None
    config = tmp_path / "c.toml"
    assert read_settings(config, [], {}, {}, None).http is None
    assert settings("[http]\naddress = 9000\n", tmp_path).http.address == ("127.0.0.1", 9000)
    told = settings('max_held_bytes = "256MiB"\nmax_client_bytes = 1000', tmp_path)
    assert (told.max_held_bytes, told.max_client_bytes) == (256 << 20, 1000)
    told = read_settings(None, [], {}, {"max_held_bytes": "256MiB", "keep_alive": 5}, None)
    assert (told.max_held_bytes, told.max_client_bytes, told.keep_alive) == (256 << 20, None, 5.0)
    for name, value in {"max_held_bytes": "much", "keep_alive": "long", "max_loaded": 0, "drain": -1}.items():
        with pytest.raises(ConfigError, match=f"{name}="):
            read_settings(None, [], {}, {name: value}, None)


@for_each("text, sentence", {
    "[http]\nspeed = 3": r"\[http\] has no setting 'speed'; there are address, ",
    "[http]\nadress = '1'": "Did you mean address?",
    "keep_alife = 3": "no setting 'keep_alife'.* Did you mean keep_alive?",
    "[models.a]\nmodel = 'pocket'\ndtyp = 'auto'": "a: There is no option 'dtyp'. Did you mean dtype?",
    "a = " + "[" * 20_000: "is not valid TOML",
    "[http]\nmax_requests = 'x'": "HTTP: max_requests='x': must be a whole number.",
    "[http]\nmax_requests = 0": "max_requests=0 must be a whole number",
    "[http]\naddress = 'nowhere'": "must be HOST:PORT",
    "http = 3": "http is a table",
    **{f"max_held_bytes = {each}": "max_held_bytes=.*must be bytes" for each in ("0", "-1", "'much'", "true", "1.5")},
}.items())  # fmt: skip
def test_what_cannot_work_is_a_sentence(text, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        settings(text, tmp_path)


def test_a_reload_changes_http_and_cuts_nobody_off_and_a_shutdown_tells_streams_why_they_end(
    start, tmp_path, monkeypatch
):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.05")
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    table = '[http]\naddress = "127.0.0.1:0"\n'
    daemon = start(models("a", max_held_bytes=1 << 24) + table, "--http", "127.0.0.1:0")
    address = daemon.status().http
    connection, stream = streaming(address, 100)
    assert limit(daemon) == 1 << 24
    daemon.config.write_text(models("a", max_held_bytes=1 << 25) + table)
    reload_daemon(daemon.address)
    assert limit(daemon) == 1 << 25
    daemon.config.write_text(models("a", max_held_bytes=1 << 25) + table + f'api_key_file = "{keys}"\n')
    assert reload_daemon(daemon.address) == "HTTP changed"
    assert daemon.status().http == address  # the same port
    assert status(address) == 401 and status(address, "one") == 200
    assert b"data: [DONE]" in stream.read()  # under the old options
    connection.close()
    keys.write_text("two\n", encoding="utf-8-sig")  # as an editor on Windows writes it
    assert reload_daemon(daemon.address) == "HTTP changed"
    assert status(address, "one") == 401 and status(address, "two") == 200
    keys.write_text("")
    with pytest.raises(ConfigError, match="holds no key"):
        reload_daemon(daemon.address)
    assert status(address, "two") == 200  # nothing has changed
    connection, stream = streaming(address, 900, "two")
    with daemon.attach("a") as llm:
        next(attached := llm.stream([1, 2, 3], SamplingParams(max_tokens=900, ignore_eos=True)))
        stop_daemon(daemon.address, 0.1)
        with pytest.raises(PenstockError, match="closed|ended"):
            list(attached)
    assert b"shutting down" in stream.read()
    connection.close()


def test_a_folder_for_files_that_cannot_be_used_is_refused_at_the_start(tmp_path):
    async def start(folder):
        await DaemonHttp(None, Budget.of_machine(), tmp_path, bool).start(HttpOptions(files_folder=str(folder)))

    (tmp_path / "file").touch()
    make_own(tmp_path / "other" / "penstock-files", "something else")
    (tmp_path / "held").mkdir()
    held = HeldFolder(tmp_path / "held" / "penstock-files", "files and batches of clients")
    sentences = {"file": "not a directory", "other": "not Penstock's", "held": "another server keeps its files there"}
    for name, sentence in sentences.items():
        with pytest.raises(ConfigError, match=f"files_folder=.*{name} can't be used: .*{sentence}. Name another"):
            asyncio.run(start(tmp_path / name))
    held.let_go()
    with pytest.raises(ConfigError, match="files_folder='' must be a path"):
        HttpOptions(files_folder="")


def test_a_key_file_that_cannot_be_read_and_whatever_goes_wrong_in_a_reload_is_a_sentence(tmp_path, capsys):
    with pytest.raises(ConfigError, match="can't be read: .*Is a directory"):
        options = HttpOptions(http="127.0.0.1:0", api_key_file=str(tmp_path))
        asyncio.run(DaemonHttp(None, None, tmp_path, bool).start(options))

    def read_again():
        raise RuntimeError("as if by a fault of ours")

    asyncio.run(Daemon(tmp_path / "s", DaemonSettings(), read_again, print)._reload_and_say())
    assert "was not taken over: RuntimeError: as if by a fault of ours" in capsys.readouterr().err


def streaming(address, tokens, key=""):
    body = {"model": "a", "prompt": [1, 2], "max_tokens": tokens, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/completions", json.dumps(body), head)
    stream = connection.getresponse()
    assert stream.readline().startswith(b"data: ")
    return connection, stream


def status(address, key="none"):
    return httpx.get(f"{address}/v1/models", headers={"Authorization": f"Bearer {key}"}, timeout=60).status_code


def limit(daemon):
    lines = httpx.get(daemon.status().http + "/metrics", timeout=60).text.splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("penstock_held_bytes_limit "))


def http_of(*words: str) -> tuple[str, int] | None:
    parser = argparse.ArgumentParser()
    add_daemon_options(parser)
    http = settings_of(parser.parse_args(words)).http
    return http and http.address


@for_each("words, address", [
    ("", ("127.0.0.1", 8000)), ("--http 0.0.0.0:80", ("0.0.0.0", 80)), ("--port 8123", ("127.0.0.1", 8123)),
    ("--host 0.0.0.0", ("0.0.0.0", 8000)), ("--host ::1 --port 1", ("::1", 1)),
    ("--host [::1] --port 1", ("::1", 1)), ("--no-http", None),
])  # fmt: skip
def test_it_listens_where_it_is_told(words, address):
    assert http_of(*words.split()) == address


@for_each("words, sentence", [
    ("--port x", "'x' is no port."), ("--port " + "9" * 5000, "ports end at 65535; 0 is any that is free."),
    ("--http 99999", "HTTP: http='99999' must be HOST:PORT such as 127.0.0.1:8000, or a port: ports end at 65535;"),
    ("--http 127.0.0.1:٣٠٠٠", "'٣٠٠٠' is no port."), ("--http :80", "HOST is missing; 0.0.0.0 is every"),
    ("--host 1.2.3.4:5", "'1.2.3.4:5' is no address."), ("--http https://localhost:80", "the scheme is left out;"),
])  # fmt: skip
def test_an_address_that_can_be_none_is_refused_with_what_is_wrong(words, sentence):
    with pytest.raises(ConfigError) as raised:
        http_of(*words.split())
    told = str(raised.value)
    assert sentence in told and "must be HOST:PORT" in told and not told.endswith("..") and ": :" not in told


def test_two_addresses_and_a_host_that_is_not_this_machines_are_refused():
    with pytest.raises(ConfigError, match="give one or the other"):
        http_of("--http", "8000", "--port", "8001")
    with pytest.raises(ConfigError, match=r"has no address: .* 0.0.0.0 for all"):
        listening_socket("a..b", 0)
    with pytest.raises(ConfigError, match=r"can't be listened on: .* 127.0.0.1 is for its own"):
        listening_socket("192.0.2.1", 0)
