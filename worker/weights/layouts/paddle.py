"""Paddle's own layout of ERNIE-4.5, shown as Hugging Face's: the names, shapes and slices that layers ask for.

  ernie.layers.N.self_attn.qkv_proj.weight  [in, query | key | value]: all query heads, then all of the keys, the values
  ernie.layers.N.mlp.up_gate_proj.weight    [in, gate | up]: the gate first, whatever its name says; in experts likewise
  other projections, and a router's gate    [in, out], the reverse of torch's
  lm_head.weight                            [in, out] as ERNIEKit writes it, [out, in] as PaddleFormers does
  vision_model, ernie.resampler_model       weights of projections likewise; qkv as elsewhere
  embeddings, norms, biases                 as elsewhere; biases are fused as their projections are

bfloat16 may be labelled as 16-bit integers, since numpy has no such type. Slices are read lazily, as from any file.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy

from ....kernels.arrays import BFLOAT16, Array
from ...description.config import ModelConfig
from ...description.text_config import text_name
from .tensor_names import PADDLE_PREFIX

_TRANSPOSED = re.compile(r"(_proj|\.gate|mtp_linear_proj\.\d+)\.weight$")
# In ERNIE-4.5-VL; its routers are [in, out] in all layouts.
_OF_PICTURES = re.compile(r"^visual\..*\.(proj|qkv|fc1|fc2|mlp|(spatial|temporal)_linear\.[02])\.weight$")
_FUSED = re.compile(r"(.*\.)(qkv_proj|up_gate_proj)\.(weight|bias)")


class _Share(NamedTuple):
    """A share of a fused tensor's outputs: the parts from first to last + 1 of `total`."""

    first: int
    last: int
    total: int

    def span(self, outputs: int) -> tuple[int, int]:
        return outputs * self.first // self.total, outputs * self.last // self.total


_WHOLE = _Share(0, 1, 1)


class PaddleLayout:
    def __init__(self, config: ModelConfig) -> None:
        query, shared = config.num_heads, config.heads[0].num_kv_heads
        heads = query + 2 * shared
        self.vocab_size = config.vocab_size
        # Routers have the same form in all of the family's checkpoints.
        self.is_router_transposed = config.experts is not None and config.experts.names.router_is_transposed
        self._shares = {
            "q_proj": _Share(0, query, heads),
            "k_proj": _Share(query, query + shared, heads),
            "v_proj": _Share(query + shared, heads, heads),
            "gate_proj": _Share(0, 1, 2),
            "up_proj": _Share(1, 2, 2),
        }
        self._fused_into: dict[str, _Share] = {}  # by the names of fused projections

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return dict(self._named(stored))

    def _named(self, stored: Iterable[str]) -> Iterator[tuple[str, str]]:
        parts = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "up_gate_proj": ("gate_proj", "up_proj")}
        for each in stored:
            name = "model." + each.removeprefix(PADDLE_PREFIX) if each.startswith(PADDLE_PREFIX) else each
            name = text_name(name)
            fused = _FUSED.fullmatch(name)
            if fused is None:
                yield name, each
                continue
            module, kind, tensor = fused.groups()
            for part in parts[kind]:
                own = f"{module}{part}.{tensor}"
                self._fused_into[own] = self._shares[part]
                yield own, each

    def view(self, name: str, stored: Array) -> Array:
        if not stored.shape:
            return stored
        if stored.dtype == numpy.uint16:
            stored = stored.view(BFLOAT16)
        if name == "lm_head.weight":
            is_transposed = stored.shape[0] != self.vocab_size
        else:
            is_transposed = self._is_transposed(name)
        own = stored[..., slice(*self._fused_into.get(name, _WHOLE).span(stored.shape[-1]))]
        return own.T if is_transposed else own

    def _is_transposed(self, name: str) -> bool:
        if _OF_PICTURES.search(name):
            return True
        is_asked_so = self.is_router_transposed and name.endswith(".gate.weight")
        return _TRANSPOSED.search(name) is not None and not is_asked_so
