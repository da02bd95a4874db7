"""The figures that a memory plan is made from: the limits of a step's size, and what a rank has measured."""

from dataclasses import dataclass

from ....protocol.media import MediaPlan
from ....protocol.options.config import EngineConfig
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
        """The most sequences that are computed at once: each gets a token in every step."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """What a rank has measured once its weights are loaded."""

    device: str
    device_name: str
    weight_bytes: int
    mapped_bytes: int = 0  # of the weights, those in a file
    other_mapped_bytes: int = 0  # of ranks that share the memory
    activation_bytes: int
    available_bytes: int  # free, the weights being in already; less than nothing where those that are mapped are not
    groups: tuple[GroupSize, ...]  # of layers, the one that holds the longest contexts first
    model_context: int
    context_cut: str = ""  # why it ends before the model's own, if it does
    vocab_size: int
    dtype: str
    kv_dtype: str
    kernels: str = ""
    host_bytes: int = 0  # free in CPU memory beside a card's
    adapter_bytes: int = 0
    media: MediaPlan | None = None  # of a model that sees
    stretches: tuple[int, ...] = ()  # lengths that positions are rotated for, where there are several
    notes: tuple[str, ...] = ()

    @property
    def mapped_in_all(self) -> int:
        return self.mapped_bytes + self.other_mapped_bytes

    @property
    def beside_bytes(self) -> int:
        """What is taken beside weights and KV memory."""
        media = 0 if self.media is None else self.media.kept_bytes
        return self.activation_bytes + self.adapter_bytes + media

    @property
    def room(self) -> int:
        """For KV memory, where mapped weights give way."""
        return self.available_bytes + self.mapped_in_all - self.beside_bytes
