"""Where `penstock serve` is told to listen: by `--http`, or as other servers are told, by `--host` and `--port`."""

import argparse

import pytest
from builders.cases import for_each

from penstock.frontend.commands.shared.daemon_options import add_daemon_options, settings_of
from penstock.frontend.http.connections.server import listening_socket
from penstock.protocol.errors import ConfigError


def http_of(*words: str) -> tuple[str, int] | None:
    parser = argparse.ArgumentParser()
    add_daemon_options(parser)
    http = settings_of(parser.parse_args(words)).http
    return http and http.address


@for_each(
    "words, address",
    [
        ([], ("127.0.0.1", 8000)),
        (["--http", "0.0.0.0:80"], ("0.0.0.0", 80)),
        (["--port", "8123"], ("127.0.0.1", 8123)),
        (["--host", "0.0.0.0"], ("0.0.0.0", 8000)),
        (["--host", "::1", "--port", "1"], ("::1", 1)),
        (["--host", "[::1]", "--port", "1"], ("::1", 1)),
        (["--no-http"], None),
    ],
)
def test_it_listens_where_it_is_told(words, address):
    assert http_of(*words) == address


def test_both_ways_at_once_are_refused():
    with pytest.raises(ConfigError, match="give one or the other"):
        http_of("--http", "8000", "--port", "8001")


@for_each(
    "words, sentence",
    [
        (["--port", "x"], "'x' is no port."),
        (
            ["--http", "99999"],
            "HTTP: http='99999' must be HOST:PORT such as 127.0.0.1:8000, or a port: ports end at 65535;",
        ),
        (["--port", "9" * 5000], "ports end at 65535; 0 is any that is free."),
        (["--http", "127.0.0.1:٣٠٠٠"], "'٣٠٠٠' is no port."),
        (["--http", ":80"], "HOST is missing; 0.0.0.0 is every"),
        (["--host", "1.2.3.4:5"], "'1.2.3.4:5' is no address."),
        (["--http", "https://localhost:80"], "the scheme is left out;"),
    ],
)
def test_an_address_that_can_be_none_is_refused_with_what_is_wrong(words, sentence):
    with pytest.raises(ConfigError) as raised:
        http_of(*words)
    told = str(raised.value)
    assert sentence in told and "must be HOST:PORT" in told and not told.endswith("..") and ": :" not in told


@for_each(
    "host, sentence",
    [
        ("a..b", "has no address: .* 0.0.0.0 for all"),
        ("192.0.2.1", "can't be listened on: .* 127.0.0.1 is for its own"),
    ],
)
def test_a_host_that_is_not_this_machines_is_told_with_those_that_are(host, sentence):
    with pytest.raises(ConfigError, match=sentence):
        listening_socket(host, 0)
