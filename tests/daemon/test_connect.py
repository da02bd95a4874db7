"""`connect` decides: a private tree, the daemon, or a daemon that is started first."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.daemon import RunningDaemon, wait_for
from builders.watching import is_running

from penstock import LLM, ConfigError, SamplingParams
from penstock.frontend.daemon.background import start_daemon, stop_daemon
from penstock.frontend.daemon.lock import process_of
from penstock.protocol.attach import daemon_socket

STAND_IN = {"load_format": "stand-in", "max_model_len": 256, "num_gpu_blocks_override": 32}
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture
def usual(monkeypatch) -> Iterator[Path]:
    """Where scripts look for a daemon: there is none yet, and the one that was started is ended."""
    with TemporaryDirectory(prefix="pu") as folder:
        monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", folder)
        yield daemon_socket()
        if daemon_socket().exists():
            stop_daemon(daemon_socket(), 0.0)


def test_auto_without_a_daemon_is_a_private_tree_with_one_notice(usual, capsys):
    with LLM("pocket", connect="auto", **STAND_IN) as llm:
        assert llm.generate([[1]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert llm._session.transport.tree.children
    assert capsys.readouterr().err.count("connect:") == 1


def test_require_and_an_address_without_a_daemon_raise(usual, tmp_path):
    for connect in ("require", str(tmp_path / "nothing")):
        with pytest.raises(ConfigError, match="no daemon listens at"):
            LLM("pocket", connect=connect, **STAND_IN)
    with pytest.raises(ConfigError, match="must be auto, require, start, never, or the path"):
        LLM("pocket", connect="always")


# `auto` has become a family's name by the time that options are compared.
CHOSEN = {
    **STAND_IN,
    "reasoning_parser": "auto",
    "quantization": {"*": "int4", "lm_head": None},
    "prefix_cache_ttl": 60,
    "quiet": True,
}
AGREE = [{}, {"reasoning_parser": "qwen3"}]
DIFFER = {
    r"reasoning_parser='none' .* Leave that out to share it": {"reasoning_parser": "none"},
    "prefix_cache_ttl=61.* Leave that out to share it": {"prefix_cache_ttl": 61},
    "quantization=.* Leave that out to share it": {"quantization": {"lm_head": None, "*": "int4"}},
}


def test_start_starts_one_daemon_whose_model_is_shared_by_whoever_asks_for_the_same(usual, tmp_path, capsys):
    with LLM("pocket", connect="start", **CHOSEN) as llm:
        assert llm.generate([[1]], PARAMS, use_tqdm=False)[0].error_code == 200
        for same in AGREE:
            with LLM("pocket", connect="require", **{**CHOSEN, **same}) as other:
                assert other.stats().blocks == 32
                [model] = RunningDaemon(usual).status().models
                assert model.clients == 2
        for sentence, other in DIFFER.items():
            with pytest.raises(ConfigError, match=sentence):
                LLM("pocket", connect="require", **{**CHOSEN, **other})
        with LLM("pocket", connect="auto", **{**CHOSEN, "max_model_len": 128, "quiet": False}) as own:
            assert own._session.transport.tree.children
    assert "max_model_len=128 (here 256)" in capsys.readouterr().err
    one_address_has_one_daemon(usual)
    plugins_are_the_owners(tmp_path)


def one_address_has_one_daemon(usual: Path) -> None:
    pid = RunningDaemon(usual).status().pid
    start_daemon(["--no-http"], usual)  # that one ends, for the first one listens
    assert RunningDaemon(usual).status().pid == pid


def plugins_are_the_owners(tmp_path: Path) -> None:
    plugin = tmp_path / "family.py"
    plugin.write_text("raise SystemExit\n")
    with pytest.raises(ConfigError, match="in the daemon's own configuration only"):
        LLM("pocket", connect="start", reasoning_parser_plugin=str(plugin), reasoning_parser="own", **STAND_IN)


def test_a_daemon_that_lingers_ends_when_nobody_has_needed_it_for_a_while(usual):
    start_daemon(["--no-http", "--linger", "0.2"], usual)
    lock = process_of(usual)
    wait_for(lambda: lock is None or not is_running(lock.pid), "it has ended")
    wait_for(lambda: not usual.exists(), "its socket is removed")
