"""Small names of DashInfer's API: devices, cache modes, how far a request has come."""

from enum import Enum, IntEnum

from ...protocol.errors import RequestError


class TargetDevice(Enum):
    CUDA = "CUDA"
    CPU = "CPU"  # all cores that the process may use
    CPU_NUMA = "CPU_NUMA"  # a rank on each NUMA node that is named


class AsCacheMode(Enum):
    """The storage type of keys and values; the value is the option `kv_cache_dtype`."""

    AsCacheDefault = "auto"  # as the weights
    AsCacheQuantI8 = "int8"
    AsCacheQuantU4 = "uint4"


class RoPEScaleMethod(Enum):
    """Ways to stretch rotary positions beyond the context that a model was trained with."""

    NO_SCALE = 0
    YaRN = 3
    NTK = 4


class GenerateRequestStatus(IntEnum):
    """How far a request has come. It passes them in this order, and ends as finished or as interrupted."""

    Init = 0  # no token yet
    ContextFinished = 1  # the prompt is computed, and with it the first token
    Generating = 2
    GenerateFinished = 3  # by an end token, a stop sequence, or a length limit
    GenerateInterrupted = 4  # stopped by a call or with its model, or its tree died, or KV memory can't hold it

    @property
    def is_end(self) -> bool:
        return self in (GenerateRequestStatus.GenerateFinished, GenerateRequestStatus.GenerateInterrupted)


class VocabType(Enum):
    """How a tokenizer is built. Penstock reads that from the model; a request may name one and nothing changes."""

    VOCAB_TYPE_BPE = 0
    VOCAB_TYPE_WPM = 1
    VOCAB_TYPE_SPM = 2
    VOCAB_TYPE_UGM = 3


class MultiMediaInfo:
    """Rows of pictures from a caller's own encoder, for `mm_info`."""

    def __init__(self) -> None:
        raise RequestError(NO_OWN_ROWS)


NO_OWN_ROWS = (
    "Rows of pictures that a caller's own encoder has made (MultiMediaInfo, mm_info) are not taken: the model encodes "
    "pictures itself here. Give them to LLM.chat, or to LLM.generate as multimodal_data."
)
