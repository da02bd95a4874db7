"""A rank's findings at start: its memory, how it intends to divide it, and the model's own figures."""

from .layer_groups import GroupPlan
from .media import MediaPlan
from .wire import Part

MOST_LAYERED = 512  # tokens of a chunk that is computed layer by layer


class MemoryPlan(Part):
    """The memory that one rank found, and how much of it the rank intends to take."""

    device: str  # "cpu", "cuda:0"
    device_name: str
    weight_bytes: int
    activation_bytes: int
    available_bytes: int  # free for the tree before anything was taken
    groups: list[GroupPlan]  # of layers, the longest first
    max_model_len: int  # as requested, or the model's own, cut to what the blocks hold
    model_context: int  # the model's own
    vocab_size: int
    dtype: str
    kv_dtype: str
    kernels: str = ""  # which kernels compute: "native, avx512_bf16", "torch"
    kernels_digest: str = ""  # identifies their sources; an answer's bits may differ between two of them
    notes: list[str] = []  # sentences for the start-up table
    adapter_bytes: int = 0  # for LoRA adapters, this rank
    # The lengths that positions are rotated for, if that depends on a request's length: the shortest sufficient one is
    # used.
    stretches: list[int] = []
    resident_bytes: int | None = None  # weights that stay in memory: fewer if those that are mapped don't fit
    media: MediaPlan | None = None  # for a vision model
    num_layers: int = 0  # through which a chunk can pass over several steps; 0: only whole steps
    is_deterministic: bool = True  # a row has the same bits in any batch, and however many of its tokens a step has
    layer_keys: int = 1  # keys that a token attends to in the time of its matrix products in a layer
    vector_width: int = 0  # numbers of a vector, if the model gives vectors
    has_whole_texts: bool = False  # tokens see those after them: a prompt is one step's, and none of it is another's

    @property
    def block_bytes(self) -> int:
        """The size of a block of the first group, which holds the longest contexts."""
        return self.groups[0].block_bytes

    @property
    def num_blocks(self) -> int:
        """The number of blocks of the first group."""
        return self.groups[0].num_blocks

    @property
    def num_cpu_blocks(self) -> int:
        """Cells of the first group's second tier."""
        return self.groups[0].num_cpu_blocks

    @property
    def kv_bytes(self) -> int:
        """The memory of keys, values and states in all groups."""
        return sum(group.num_blocks * group.block_bytes for group in self.groups)

    @property
    def taken_bytes(self) -> int:
        """Memory that the model takes on this rank between steps. Commands that show a model's memory show this figure
        for all ranks and trees (`taken_by`)."""
        return taken_bytes(self.weight_bytes, self.kv_bytes, self.media) + self.adapter_bytes

    def taken_by(self, ranks: int, trees: int) -> int:
        """Memory that so many trees of so many ranks take. On a CPU they read the same weights."""
        weights = self.weight_bytes * (1 if self.device == "cpu" else trees)
        return ranks * (weights + trees * (self.taken_bytes - self.weight_bytes))

    @property
    def swap_bytes(self) -> int:
        """The CPU memory of the second tier."""
        return sum(group.num_cpu_blocks * group.block_bytes for group in self.groups)


def taken_bytes(weight_bytes: int, kv_bytes: int, media: MediaPlan | None) -> int:
    """The same for a model that isn't loaded and so has no adapters."""
    return weight_bytes + kv_bytes + (0 if media is None else media.kept_bytes)
