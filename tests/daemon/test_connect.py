"""Tests of `connect`, which gives a private tree, the daemon, or a daemon that is started first."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.daemon import RunningDaemon
from builders.watching import is_running, wait_until

from penstock import LLM, ConfigError, SamplingParams
from penstock.frontend.daemon.background import start_daemon, stop_daemon
from penstock.frontend.daemon.lock import process_of
from penstock.protocol.processes.runtime_directory import daemon_socket

STAND_IN = {"load_format": "stand-in", "max_model_len": 256, "num_gpu_blocks_override": 32}
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture
def usual(monkeypatch) -> Iterator[Path]:
    with TemporaryDirectory(prefix="pu") as folder:
        monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", folder)
        yield daemon_socket()
        if daemon_socket().exists():
            stop_daemon(daemon_socket(), 0.0)


def test_without_a_daemon_auto_is_a_private_tree_with_a_notice_and_require_and_an_address_raise(
    usual, capsys, tmp_path
):
    with LLM("pocket", connect="auto", **STAND_IN) as llm:
        assert llm.generate([[1]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert llm._session.transport.tree.children
    assert capsys.readouterr().err.count("connect:") == 1
    for connect in ("require", str(tmp_path / "nothing")):
        with pytest.raises(ConfigError, match="no daemon listens at"):
            LLM("pocket", connect=connect, **STAND_IN)
    with pytest.raises(ConfigError, match="must be auto, require, start, never, or the path"):
        LLM("pocket", connect="always")


CHOSEN = {
    **STAND_IN, "reasoning_parser": "auto", "quantization": {"*": "int4", "lm_head": None}, "prefix_cache_ttl": 60,
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 4}, "early_stop_config": {"window_size": 300},
    "quiet": True,
}  # fmt: skip
AGREE = [
    {"reasoning_parser": "qwen3"},
    {"speculative_config": {"method": "ngram_match", "num_speculative_tokens": 4, "max_ngram_size": 5}},
]
DIFFER = {
    r"reasoning_parser='none' .* Leave that out to share it": {"reasoning_parser": "none"},
    "prefix_cache_ttl=61.* Leave that out to share it": {"prefix_cache_ttl": 61},
    r"speculative_config={'method': 'off'} \(here {'method': 'ngram', 'num_.*': 4}\)\. Leave that out": {
        "speculative_config": False
    },
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
    pid = RunningDaemon(usual).status().pid
    start_daemon(["--no-http"], usual)  # that one ends, for the first one listens
    assert RunningDaemon(usual).status().pid == pid
    plugin = tmp_path / "family.py"
    plugin.write_text("raise SystemExit\n")
    with pytest.raises(ConfigError, match="in the daemon's own configuration only"):
        LLM("pocket", connect="start", reasoning_parser_plugin=str(plugin), reasoning_parser="own", **STAND_IN)


def test_a_daemon_that_lingers_ends_when_nobody_has_needed_it_for_a_while(usual):
    start_daemon(["--no-http", "--linger", "0.2"], usual)
    lock = process_of(usual)
    wait_until(lambda: lock is None or not is_running(lock.pid), "it has ended")
    wait_until(lambda: not usual.exists(), "its socket is removed")
