"""Every special way can be switched off or on by itself; how choices of a kernel are tried, and what launches need."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import re
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from subprocess import CalledProcessError
from threading import Barrier
from types import SimpleNamespace

import pytest
import torch
from builders.cases import for_each
from hypothesis import example, given
from hypothesis import strategies as st
from triton.runtime import driver

from penstock.kernels import triton as kernels
from penstock.kernels.triton.launch import switches
from penstock.kernels.triton.launch.switches import SWITCHES, Switch
from penstock.kernels.triton.launch.tuning import LaunchConfig, compiled_together
from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig
from penstock.worker.backends.select import chosen_device

CONFIG = EngineConfig.from_options("model", device="cpu")
CHOICES = [LaunchConfig.of(BLOCK=block) for block in (16, 32)]


def switched(monkeypatch, switch: Switch, value: str) -> Switch:
    monkeypatch.setenv(switch.variable, value)
    return Switch(switch.variable, switch.is_on_unasked, switch.what)


@for_each("switch", SWITCHES, ids=lambda switch: switch.variable)
def test_a_switch_is_what_its_variable_says(monkeypatch, switch):
    assert not switched(monkeypatch, switch, "0").is_on
    assert switched(monkeypatch, switch, "1").is_on
    assert switched(monkeypatch, switch, "").is_on == switch.is_on_unasked
    with pytest.raises(ValueError, match=f"{switch.variable}='yes' is neither 0"):
        assert switched(monkeypatch, switch, "yes").is_on


# What can't be in an environment: a zero byte, and half a surrogate pair that stands for no byte.
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.integers().map(str))
@example("true")
@example(" 1")
@example("\udcff")
def test_a_wrong_value_of_any_switch_ends_the_start_of_any_tree_in_a_sentence(value):
    for switch in SWITCHES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(switch.variable, value)
            if value in ("", "0", "1"):
                assert chosen_device(CONFIG, rank=0).kind == "cpu"
                continue
            sentence = f"{switch.variable}={value!r} is neither 0 (off) nor 1 (on): {switch.what}."
            with pytest.raises(ConfigError) as raised:
                chosen_device(CONFIG, rank=0)
            assert str(raised.value) == sentence


def test_every_switch_is_on_the_page():
    page = (Path(switches.__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")
    rows = [f"| `{switch.variable}` | {int(switch.is_on_unasked)} | {switch.what} |" for switch in SWITCHES]
    assert "\n".join(rows) in page


class OutOfResources(Exception):
    """As triton names what it raises for a choice that a GPU has no room for."""


def test_choices_are_compiled_side_by_side():
    both = Barrier(2)
    assert compiled_together(CHOICES, lambda choice: both.wait(timeout=60)) == CHOICES


def test_choices_are_tried_on_the_stream_of_the_step_that_meets_them(monkeypatch):
    """Trials on another stream would count with the counters of kernels that still run."""
    stream = ContextVar("stream", default="a thread's own")

    @contextmanager
    def on(entered: str):
        before = stream.set(entered)
        yield
        stream.reset(before)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "of the step")
    monkeypatch.setattr(torch.cuda, "stream", on)
    found = []
    compiled_together(CHOICES, lambda choice: found.append(stream.get()))
    assert found == ["of the step"] * len(CHOICES)


def test_a_choice_that_a_gpu_has_no_room_for_is_left_out_and_another_fault_is_said():
    def launch(choice: LaunchConfig, fault: Exception) -> None:
        if choice["BLOCK"] == 32:
            raise fault

    assert compiled_together(CHOICES, lambda choice: launch(choice, OutOfResources())) == CHOICES[:1]
    with pytest.raises(TypeError, match="of that"):
        compiled_together(CHOICES, lambda choice: launch(choice, TypeError("of that")))


@for_each(
    "error",
    [RuntimeError("Failed to find C compiler."), CalledProcessError(1, ["gcc", "cuda_utils.c"])],
    ids=["no compiler", "no headers"],
)
def test_a_machine_on_which_triton_cannot_compile_its_launcher_says_what_it_needs(error, monkeypatch):
    def active() -> SimpleNamespace:
        raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(driver, "_active", SimpleNamespace(get_current_target=active))
    assert re.search(r"C compiler .* Python's headers .*(Failed to find|gcc)", kernels.lack())
