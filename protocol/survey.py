"""A worker's report to the front end about a machine and its models, as one JSON object.

`python -m penstock.worker.survey` makes it, since only a worker knows which models it can load and only it may import
torch.
"""

import os
import re
from pathlib import Path

import msgspec

SURVEYED_TOKENS = 2048  # of context, counted in addition to the weights
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # of GPUs, under Linux and under WSL
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_HIDDEN = re.compile(r"\s*(?:,|$|-0*[1-9]|NoDevFiles)")  # the last is Slurm's, for jobs without cards


def has_driver() -> bool:
    return any(Path(driver).exists() for driver in _DRIVERS)


def are_cards_hidden() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides all cards on purpose: its first entry is empty, negative or Slurm's."""
    return _HIDDEN.match(os.environ.get(VISIBLE_DEVICES, "0")) is not None


class ModelSurvey(msgspec.Struct):
    """One model's folder. If there is a refusal, the figures are 0."""

    refusal: str | None = None  # why it can't be loaded
    family: str = ""
    dtype: str = ""  # of the checkpoint
    context: int = 0
    cut: str = ""  # why the context ends before the model's own, as the end of a sentence
    stored_bytes: int = 0  # the weights as stored, and as a GPU holds them
    cpu_bytes: int = 0  # the weights as this machine's processor computes with them
    # Bytes that must be in memory if the rest is mapped from the disk: one tensor, while it is packed. 0: that can't be
    # done.
    largest_bytes: int = 0
    kv_bytes: int = 0  # keys, values and states of SURVEYED_TOKENS, or of the context if that is shorter
    taken_bytes: int = 0  # memory that a start without options takes on this machine, weights included
    taken_kv_bytes: int = 0  # KV memory in that figure
    identity: str = ""  # the beginning of the names of its cached packed weights
    cut_for: int = 0  # number of ranks, if its weights are split for them; the figures are for all ranks together


class GpuSurvey(msgspec.Struct):
    name: str
    total_bytes: int
    free_bytes: int


class TorchSurvey(msgspec.Struct):
    """If torch cannot be imported, `error` says why; without torch the rest is empty."""

    error: str | None = None
    version: str = ""  # "" if it isn't installed
    cuda: str | None = None  # the version that torch is built for
    triton: str | None = None
    cards: list[GpuSurvey] = msgspec.field(default_factory=list)
    lack: str = ""  # why it finds none, as the end of a sentence


class NativeSurvey(msgspec.Struct):
    """The native kernels for this processor; `problem` says why there are none."""

    variant: str = ""  # the kernels' instruction set
    is_compiled: bool = False
    can_compile: bool = False
    problem: str | None = None


class Survey(msgspec.Struct):
    available_bytes: int  # within the limits of control groups
    families: list[str]  # architectures that can be loaded
    models: list[ModelSurvey]  # in the order of the folders asked for
    torch: TorchSurvey | None = None  # if asked for
    native: NativeSurvey | None = None  # if torch was asked for
