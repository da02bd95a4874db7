"""The inputs of a memory plan: the limits of a step's size, and a rank's measurements."""

from ....protocol.media import MediaPlan
from ....protocol.options.config import EngineConfig
from ....records import dataclass
from .shares import GroupSize


@dataclass(frozen=True)
class Size:
    """The limits of a step's size."""

    max_num_seqs: int
    max_num_batched_tokens: int

    @classmethod
    def of(cls, config: EngineConfig, device_type: str) -> "Size":
        return cls(*config.step_limits(device_type))

    @property
    def num_slots(self) -> int:
        """The most sequences that run at once: each gets a token in every step."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """A rank's measurements once its weights are loaded."""

    device: str
    device_name: str
    weight_bytes: int
    mapped_bytes: int = 0  # bytes of weights that are mapped from a file
    other_mapped_bytes: int = 0  # of other ranks on the same memory
    activation_bytes: int
    available_bytes: int  # free after loading the weights; negative if mapped weights don't fit
    groups: tuple[GroupSize, ...]  # groups of layers, the one with the longest contexts first
    model_context: int
    context_cut: str = ""  # why the context is shorter than the model's own, if it is
    vocab_size: int
    dtype: str
    kv_dtype: str
    kernels: str = ""
    kernels_digest: str = ""
    host_bytes: int = 0  # free CPU memory, for a card
    adapter_bytes: int = 0
    media: MediaPlan | None = None  # for a model with vision
    num_layers: int = 0
    is_deterministic: bool = True
    layer_keys: int = 1  # that a token attends to in the time of its matrix products in a layer
    vector_width: int = 0
    has_whole_texts: bool = False
    stretches: tuple[int, ...] = ()  # lengths that positions are rotated for, if there are several
    notes: tuple[str, ...] = ()

    @property
    def mapped_in_all(self) -> int:
        return self.mapped_bytes + self.other_mapped_bytes

    @property
    def beside_bytes(self) -> int:
        """Bytes taken in addition to weights and KV memory."""
        media = 0 if self.media is None else self.media.kept_bytes
        return self.activation_bytes + self.adapter_bytes + media

    @property
    def room(self) -> int:
        """Bytes for KV memory if mapped weights may be dropped."""
        return self.available_bytes + self.mapped_in_all - self.beside_bytes
