"""`connect` decides: a private tree, the daemon, or a daemon that is started first."""

import pytest
from builders.daemon import wait_for
from builders.watching import is_running

from penstock import LLM, ConfigError, SamplingParams
from penstock.frontend.daemon.background import line_to, start_daemon, status_of, stop_daemon
from penstock.protocol.attach import daemon_socket

STAND_IN = {"load_format": "stand-in", "max_model_len": 256, "num_gpu_blocks_override": 32}
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture(autouse=True)
def ends_what_was_started():
    yield
    if daemon_socket().exists():
        stop_daemon(daemon_socket(), 0.0)


def test_auto_without_a_daemon_is_a_private_tree_with_one_notice(capsys):
    with LLM("pocket", connect="auto", **STAND_IN) as llm:
        assert llm.generate([[1]], PARAMS, use_tqdm=False)[0].error_code == 200
        assert llm._session.transport.tree.children
    assert capsys.readouterr().err.count("connect:") == 1


def test_require_and_an_address_without_a_daemon_raise(tmp_path):
    for connect in ("require", str(tmp_path / "nothing")):
        with pytest.raises(ConfigError, match="no daemon listens at"):
            LLM("pocket", connect=connect, **STAND_IN)
    with pytest.raises(ConfigError, match="must be auto, require, start, never, or the path"):
        LLM("pocket", connect="always")


def test_start_starts_one_and_brings_its_model_and_others_share_it(capsys):
    with LLM("pocket", connect="start", **STAND_IN, quiet=True) as llm:
        assert llm.generate([[1]], PARAMS, use_tqdm=False)[0].error_code == 200
        with LLM("pocket", connect="auto", **STAND_IN, quiet=True) as other:
            assert other.stats().blocks == 32
            line = line_to(daemon_socket())
            [model] = status_of(line).models
            line.close()
            assert model.clients == 2
        with LLM("pocket", connect="auto", **{**STAND_IN, "max_model_len": 128}) as own:
            assert own._session.transport.tree.children
    assert "max_model_len=128 (here 256)" in capsys.readouterr().err


def test_an_option_that_the_models_files_settle_agrees_with_itself():
    """`auto` has become a family's name by then."""
    chosen = {**STAND_IN, "reasoning_parser": "auto", "quiet": True}
    with LLM("pocket", connect="start", **chosen), LLM("pocket", connect="require", **chosen) as second:
        assert second.stats().blocks == 32
        with LLM("pocket", connect="require", **{**chosen, "reasoning_parser": "qwen3"}) as third:
            assert third.stats().blocks == 32
        with pytest.raises(ConfigError, match=r"reasoning_parser='none' .* Leave that out to share it"):
            LLM("pocket", connect="require", **{**chosen, "reasoning_parser": "none"})


def test_kinds_by_layer_and_a_time_to_live_agree_with_themselves_and_with_nothing_else():
    chosen = {**STAND_IN, "quantization": {"*": "int4", "lm_head": None}, "prefix_cache_ttl": 60, "quiet": True}
    with LLM("pocket", connect="start", **chosen), LLM("pocket", connect="require", **chosen) as second:
        assert second.stats().blocks == 32
        for other in ({"prefix_cache_ttl": 61}, {"quantization": {"lm_head": None, "*": "int4"}}):
            with pytest.raises(ConfigError, match="Leave that out to share it"):
                LLM("pocket", connect="require", **{**chosen, **other})


def test_code_from_plugins_comes_from_the_daemons_own_configuration_only(tmp_path):
    plugin = tmp_path / "family.py"
    plugin.write_text("raise SystemExit\n")
    start_daemon(["--no-http"], daemon_socket())
    with pytest.raises(ConfigError, match="in the daemon's own configuration only"):
        LLM("pocket", connect="start", reasoning_parser_plugin=str(plugin), reasoning_parser="own", **STAND_IN)


def test_one_address_has_one_daemon():
    start_daemon(["--no-http"], daemon_socket())
    line = line_to(daemon_socket())
    pid = status_of(line).pid
    line.close()
    start_daemon(["--no-http"], daemon_socket())  # that one ends, for the first one listens
    line = line_to(daemon_socket())
    assert status_of(line).pid == pid
    line.close()


def test_a_daemon_that_lingers_ends_when_nobody_has_needed_it_for_a_while():
    start_daemon(["--no-http", "--linger", "0.2"], daemon_socket())
    line = line_to(daemon_socket())
    pid = status_of(line).pid
    line.close()
    wait_for(lambda: not is_running(pid), "it has ended")
    assert not daemon_socket().exists()
