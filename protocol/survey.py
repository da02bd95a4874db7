"""What a machine and its models look like to a worker, as its survey says it to the front end in one JSON object.

`python -m penstock.worker.survey` makes one, since only a worker knows which models it can load and only it may import
torch. Knows nothing of how anything is found out.
"""

import msgspec


class ModelSurvey(msgspec.Struct):
    """One model's folder; with a refusal the figures are 0."""

    refusal: str | None = None  # why it would not load
    family: str = ""
    dtype: str = ""  # of the checkpoint
    context: int = 0
    stored_bytes: int = 0  # weights as they are stored, and as a GPU holds them
    cpu_bytes: int = 0  # weights as this machine's processor computes with them
    kv_bytes_per_token: int = 0
    identity: str = ""  # with which the names of packed weights begin that were kept of it
    cut_for: int = 0  # ranks, if its weights are cut for a number of them; the figures are those of all together


class GpuSurvey(msgspec.Struct):
    name: str
    total_bytes: int
    free_bytes: int


class TorchSurvey(msgspec.Struct):
    """`error` says why torch cannot be imported; then the rest is empty."""

    error: str | None = None
    version: str = ""
    cuda: str | None = None  # the version that it is built for
    triton: str | None = None
    cards: list[GpuSurvey] = msgspec.field(default_factory=list)


class NativeSurvey(msgspec.Struct):
    """The processor's own kernels; `problem` says why there can be none here."""

    variant: str = ""  # the instruction set that they are for
    is_compiled: bool = False
    can_compile: bool = False
    problem: str | None = None


class Survey(msgspec.Struct):
    available_bytes: int  # of memory, the limits of control groups counted
    families: list[str]  # architectures that can be loaded
    models: list[ModelSurvey]  # in the order of the folders asked for
    torch: TorchSurvey | None = None  # where it was asked for
    native: NativeSurvey | None = None  # likewise, and where torch can be imported
