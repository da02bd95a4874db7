"""Facts of Gemma's families, which scale scores and rotate windows in their own way."""

from .....records import dataclass
from ..refusals import UNSUPPORTED, MalformedError
from .facts import FULL, SLIDING, Windows
from .model_metadata import Config, ModelMetadata


@dataclass(frozen=True)
class ScoreScale:
    """The number whose root divides scores. Files have no key for it: llama.cpp recognizes the largest model."""

    largest: int  # its number of layers

    def __call__(self, given: ModelMetadata) -> Config:
        hidden, heads = given.count("embedding_length"), given.count("attention.head_count")
        return {"query_pre_attn_scalar": self.of(given.num_layers, hidden // heads, given.head_dim)}

    def of(self, num_layers: int, width: int, head_dim: int) -> int:
        """`width`: the hidden size divided by the number of heads."""
        return width if num_layers == self.largest else head_dim


GELU = "gelu_pytorch_tanh"
WINDOWS = Windows(6)


def gemma4_layers(given: ModelMetadata) -> Config:
    windows = WINDOWS(given)
    kinds = windows["layer_types"]
    in_windows = {"rope_type": "default", "rope_theta": given.number("rope.freq_base_swa", 10_000.0)}
    widths, readers = given.counts("feed_forward_length"), given.count("attention.shared_kv_layers", 0)
    return {
        "hidden_activation": GELU,
        "rope_scaling": None,
        "intermediate_size": widths[0],
        "use_double_wide_mlp": _is_wider(widths, readers),
        "num_kv_shared_layers": readers,
        "vocab_size_per_layer_input": given.rows("token_embd.weight"),
        "rope_parameters": {FULL: _proportional(given), SLIDING: in_windows},
        **windows,
        **_heads(given, kinds, readers),
    }


def _is_wider(widths: list[int], readers: int) -> bool:
    """Layers that reuse other layers' keys may have MLPs twice as wide; all others are alike."""
    own = len(widths) - readers
    is_wider = readers > 0 and widths[-1] == 2 * widths[0]
    if set(widths[:own]) != {widths[0]} or set(widths[own:]) - {widths[0] * (1 + is_wider)}:
        raise MalformedError("has MLPs of widths that its family hasn't", UNSUPPORTED)
    return is_wider


def _heads(given: ModelMetadata, kinds: list[str], readers: int) -> Config:
    """Heads of keys and values: layers without a window may have other heads, whose keys also serve as values."""
    counts = given.counts("attention.head_count_kv")
    in_windows = {count for count, kind in zip(counts, kinds, strict=True) if kind == SLIDING}
    elsewhere = {count for count, kind in zip(counts, kinds, strict=True) if kind == FULL}
    if len(in_windows) > 1 or len(elsewhere) > 1:
        raise MalformedError("has layers of one kind with different numbers of key-value heads", UNSUPPORTED)
    values = given.has_in_layers("attn_v.weight")[: len(kinds) - readers]
    keys_serve = any(kind == FULL and not own for kind, own in zip(kinds, values, strict=False))
    return {
        "num_key_value_heads": max(in_windows or elsewhere),
        "attention_k_eq_v": keys_serve,
        "num_global_key_value_heads": max(elsewhere) if keys_serve and elsewhere else None,
    }


def _proportional(given: ModelMetadata) -> Config:
    """The first of so many angles rotate; the frequencies of the others are divided by infinity."""
    factors = given.factors("rope_freqs.weight")
    turning = 1.0 if factors is None else sum(each == 1 for each in factors) / len(factors)
    theta = given.number("rope.freq_base", 1_000_000.0)
    return {"rope_type": "proportional", "partial_rotary_factor": turning, "rope_theta": theta}
