"""Where `penstock serve` is told to listen: by `--http`, or as other servers are told, by `--host` and `--port`."""

import argparse

import pytest

from penstock.frontend.commands.daemon_options import add_daemon_options, settings_of
from penstock.protocol.errors import ConfigError


def http_of(*words: str) -> tuple[str, int] | None:
    parser = argparse.ArgumentParser()
    add_daemon_options(parser)
    http = settings_of(parser.parse_args(words)).http
    return http and http.address


@pytest.mark.parametrize(
    ("words", "address"),
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


def test_a_port_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        http_of("--port", "x")
