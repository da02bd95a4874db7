"""Groups the layers of a model that share a memory, and sizes a block of it. Reads no weights and imports no torch.

Layers that keep the same kind of thing for the same tokens are a group: keys and values (or latents) of all tokens or
of a window, with the same heads; or a state of the same shape. The group with the longest contexts comes first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...protocol.layer_groups import GroupKind
from ...records import dataclass
from .config import ModelConfig
from .parts.mixers import StateShape

_ORDER: tuple[GroupKind, ...] = ("full", "window", "state")


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep the same kind of thing for the same tokens; sizes are totals over all ranks."""

    kind: GroupKind
    layers: tuple[int, ...]  # numbers of the model's layers, in order
    window: int | None = None  # tokens that a query sees, including its own; None: all
    num_kv_heads: int = 0
    head_dim: int = 0
    has_values: bool = True  # False: a value is the beginning of its key, and only keys are kept
    state: StateShape | None = None
    is_drafting: bool = False  # of the model that drafts, which rank 0 has as a whole
    num_seen_ahead: int | None = 0  # tokens after its own that a query sees; None: all of its text

    @property
    def num_kept(self) -> int:
        """Layers whose keys and values are kept at the same time. Where a query sees what follows, a text is computed
        at once, layer after layer: each layer's take the place of the one's before, and stay in the cache."""
        return len(self.layers) if self.num_seen_ahead == 0 else 1


ONE_GROUP = LayerGroup("full", ())  # all layers in one group


def groups_of(config: ModelConfig, max_model_len: int, gives_back: bool = True) -> tuple[LayerGroup, ...]:
    """Group the layers for requests of up to `max_model_len` tokens, which some windows always cover.

    With `gives_back=False` blocks are never freed, and layers with a window keep all tokens like full attention.
    """
    found: dict[LayerGroup, list[int]] = {}
    for layer, alike in enumerate(_by_layer(config)):
        if alike is None:
            continue
        is_never_left = alike.window is not None and (not gives_back or alike.window >= max_model_len)
        if config.is_two_sided:  # a text is computed at once, so all its keys stay
            alike = replace(alike, num_seen_ahead=None if alike.window is None else alike.window - 1)
        if is_never_left or config.is_two_sided:
            alike = replace(alike, kind="full", window=None)
        found.setdefault(alike, []).append(layer)
    groups = [replace(alike, layers=tuple(layers)) for alike, layers in found.items()]
    return tuple(sorted(groups, key=lambda group: (_ORDER.index(group.kind), -(group.window or 0))))


def with_draft_groups(own: Sequence[LayerGroup], num_layers: int, drafting: ModelConfig) -> tuple[LayerGroup, ...]:
    """The groups of a model of `num_layers`, and those of the model that drafts for it.

    The latter's layers are numbered behind the former's. They keep all tokens, whatever their windows: they lag behind
    the tokens that the engine gives windows' blocks back for.
    """
    numbered = (
        replace(group, layers=tuple(num_layers + layer for layer in group.layers), is_drafting=True)
        for group in groups_of(drafting, drafting.max_position, gives_back=False)
    )
    return tuple(sorted((*own, *numbered), key=lambda group: _ORDER.index(group.kind)))


def memory_bytes(config: ModelConfig, num_tokens: int, item_size: int) -> int:
    """Bytes that one request of so many tokens keeps in all layers; states are float32."""

    def tokens_kept(group: LayerGroup) -> int:
        return num_tokens if group.window is None else min(group.window, num_tokens)

    return sum(kept_bytes(group, tokens_kept(group), item_size) for group in groups_of(config, num_tokens))


def kept_bytes(group: LayerGroup, num_tokens: int, item_size: int) -> int:
    """Bytes that a group keeps for so many tokens; a state takes the same for any number."""
    if (state := group.state) is not None:
        return len(group.layers) * state.nbytes
    return group.num_kept * num_tokens * (1 + group.has_values) * group.num_kv_heads * group.head_dim * item_size


def _by_layer(config: ModelConfig) -> Iterator[LayerGroup | None]:
    """Return one empty group per layer; None for a layer that reads another's memory."""
    for window, state, heads in zip(config.windows, config.states, config.heads, strict=True):
        if heads.source is not None:
            yield None
        elif state is not None:
            yield LayerGroup("state", (), state=state)
        else:
            kind: GroupKind = "full" if window is None else "window"
            yield LayerGroup(kind, (), window, heads.num_kv_heads, heads.head_dim, config.latent is None)
