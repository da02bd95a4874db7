"""What a worker's survey tells the front end about a machine and its models, in one JSON object.

`python -m penstock.worker.survey` makes one, since only a worker knows which models it can load and only it may import
torch.
"""

import msgspec

SURVEYED_TOKENS = 2048  # of context that are counted beside the weights


class ModelSurvey(msgspec.Struct):
    """One model's folder. If there is a refusal, the figures are 0."""

    refusal: str | None = None  # why it can't be loaded
    family: str = ""
    dtype: str = ""  # of the checkpoint
    context: int = 0
    cut: str = ""  # why the context ends before the model's own, as the end of a sentence
    stored_bytes: int = 0  # the weights as they are stored, and as a GPU holds them
    cpu_bytes: int = 0  # the weights as this machine's processor computes with them
    # What of them must be in memory where the rest is mapped from the disk: one, while it is packed. 0: that can't be.
    largest_bytes: int = 0
    kv_bytes: int = 0  # of keys, values and states of SURVEYED_TOKENS, or of the context where that is shorter
    taken_bytes: int = 0  # what a start without options takes of this machine's memory, weights included
    taken_kv_bytes: int = 0  # of these, KV memory
    identity: str = ""  # the beginning of the names of its cached packed weights
    cut_for: int = 0  # number of ranks, if its weights are cut for them; the figures are for all ranks together


class GpuSurvey(msgspec.Struct):
    name: str
    total_bytes: int
    free_bytes: int


class TorchSurvey(msgspec.Struct):
    """`error` says why torch cannot be imported; then the rest is empty."""

    error: str | None = None
    version: str = ""
    cuda: str | None = None  # the version that torch is built for
    triton: str | None = None
    cards: list[GpuSurvey] = msgspec.field(default_factory=list)


class NativeSurvey(msgspec.Struct):
    """The processor's own kernels; `problem` says why there can be none here."""

    variant: str = ""  # the kernels' instruction set
    is_compiled: bool = False
    can_compile: bool = False
    problem: str | None = None


class Survey(msgspec.Struct):
    available_bytes: int  # of memory, within the limits of control groups
    families: list[str]  # architectures that can be loaded
    models: list[ModelSurvey]  # in the order of the folders asked for
    torch: TorchSurvey | None = None  # if asked for
    native: NativeSurvey | None = None  # if asked for, and if torch can be imported
