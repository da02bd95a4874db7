"""Writes the model that follows a script: an ordinary Qwen3 checkpoint, which any engine can read and quantize.

The first layer's attention looks a fixed distance back. Its queries and keys come from a constant dimension of the
embedding alone, so rotary positions decide: both are the same vector, the query turned back by the distance. Values and
outputs hand on what the token there is embedded as, and the head knows that embedding as the token to say. All other
weights are random, and what they add is tiny. The wanted logit wins by 25 or more at int8 and int4 alike.

A head for further tokens (MTP) of Qwen3-Next's form is one more such layer, with the first layer's attention. A mark in
the embeddings of the script's third part makes it err there, as a draft model does.
"""

from pathlib import Path
from typing import Any

import numpy
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from penstock.worker.convert.safetensors_file import SafetensorsFile, TensorSpec

from ..engines.contenders import models_folder
from ..models import SHAPES, STANDARD_DEVIATION, config_of, tensor_shapes, write_folder
from .scripts import DISTANCE, third_of

MODELS = models_folder("scripted")
EMBEDDED = 0.05  # standard deviation of an embedding
CONSTANT = 0.2  # in the embedding's last dimension
TINY = 1e-3  # of a usual output projection's weights
LOGIT = 40.0  # of the token to say
HEAD = "mtp."  # prefix of a head's tensors
GAP = 16.0  # between the attention's score at the distance and any other
_POOL = 2**22

Weights = NDArray[Any]


def write_scripted(
    folder: Path, shape_name: str, *, is_draft: bool = False, drafts_itself: bool = False, distance: int = DISTANCE
) -> None:
    """Write the checkpoint, once for each folder; a draft model and a model's own head err at the script's third
    part."""
    if (folder / "model.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    config = {**SHAPES[shape_name], "dtype": "bfloat16", "tie_word_embeddings": False}
    write_folder(folder, config)
    sizes = {**dict(tensor_shapes(config)), "lm_head.weight": (config["vocab_size"], config["hidden_size"])}
    if drafts_itself:
        sizes |= head_shapes(sizes, config["hidden_size"])
    unfinished = folder / "unfinished"
    unfinished.unlink(missing_ok=True)
    file = SafetensorsFile(unfinished, {name: TensorSpec(numpy.dtype(bfloat16), size) for name, size in sizes.items()})
    model = ScriptedModel(config, distance, is_draft)
    for name, size in sizes.items():
        file.rows(name, model.tensor(name, size).astype(bfloat16))
    file.close()
    unfinished.rename(folder / "model.safetensors")


def head_shapes(sizes: dict[str, tuple[int, ...]], hidden: int) -> dict[str, tuple[int, ...]]:
    """A head for further tokens, of a layer like the model's first."""
    first = "model.layers.0."
    found = {f"{HEAD}layers.0.{name.removeprefix(first)}": size for name, size in sizes.items() if first in name}
    found |= {f"{HEAD}{name}.weight": (hidden,) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
    return found | {f"{HEAD}fc.weight": (hidden, 2 * hidden)}


class ScriptedModel:
    """The weights, one tensor at a time."""

    def __init__(self, config: dict[str, Any], distance: int, is_draft: bool) -> None:
        self._hidden, self._head = config["hidden_size"], config["head_dim"]
        self._third = third_of(config["vocab_size"])
        self._group = config["num_attention_heads"] // config["num_key_value_heads"]
        # Dimensions that the values of all heads together can hand on; the last two are the mark and the constant one.
        self._handed_on = min(config["num_key_value_heads"] * self._head, self._hidden - 2)
        frequencies = config_of(config)["rope_theta"] ** (-numpy.arange(0, self._head, 2) / self._head)
        num_pairs, gap = sharpest(frequencies, distance)
        self._turns = -distance * frequencies[:num_pairs]
        # The score at the distance is sqrt(head) · scale², and elsewhere less by at least the share `gap` of it.
        self._norm = (GAP / gap / self._head**0.5) ** 0.5
        generator = numpy.random.default_rng(0)
        self._pool = generator.standard_normal(_POOL, numpy.float32)
        self._contents = generator.standard_normal((self._third, self._handed_on), numpy.float32).astype(bfloat16)
        self._is_draft = is_draft
        self._first_layer = {
            "self_attn.q_proj": lambda size: self._positions(size, self._turns),
            "self_attn.k_proj": lambda size: self._positions(size, 0 * self._turns),
            "self_attn.v_proj": self._values,
            "self_attn.o_proj": self._outputs,
            "self_attn.q_norm": lambda size: numpy.full(size, self._norm),
            "self_attn.k_norm": lambda size: numpy.full(size, self._norm),
        }

    def tensor(self, name: str, size: tuple[int, ...]) -> Weights:
        part = name.removesuffix(".weight").removeprefix(HEAD).removeprefix("model.").removeprefix("layers.0.")
        if name == f"{HEAD}layers.0.self_attn.v_proj.weight":
            return self._misled_values(size)
        if name == f"{HEAD}fc.weight":
            return numpy.eye(*size) * EMBEDDED  # the embedding alone, as small as it is in the model's stream
        if part in self._first_layer:
            return self._first_layer[part](size)
        if "embed_tokens" in name:
            return self._embedding(size)
        if "lm_head" in name:
            return self._output_head(size)
        if "norm" in name:
            return numpy.ones(size)
        is_output = "o_proj" in name or "down_proj" in name
        return self._random(size) * (STANDARD_DEVIATION * TINY if is_output else STANDARD_DEVIATION)

    def _random(self, size: tuple[int, ...]) -> Weights:
        return numpy.resize(self._pool, size)

    def _positions(self, size: tuple[int, ...], turns: Weights) -> Weights:
        """Every head's vector: pairs of dimensions that lie half a head apart, each turned by its angle."""
        vector = numpy.zeros(self._head)
        vector[: len(turns)] = numpy.cos(turns)
        vector[self._head // 2 :][: len(turns)] = numpy.sin(turns)
        weights = numpy.zeros(size)
        weights[:, -1] = numpy.tile(vector, size[0] // self._head)
        return weights

    def _values(self, size: tuple[int, ...]) -> Weights:
        weights = numpy.zeros(size)
        dimension = numpy.arange(self._handed_on)
        weights[dimension, dimension] = 1
        return weights

    def _misled_values(self, size: tuple[int, ...]) -> Weights:
        """The values, and where the mark is, so much of another token's that it is said instead."""
        weights = self._values(size)
        weights[: self._handed_on, -2] = self._contents[0]
        return weights

    def _outputs(self, size: tuple[int, ...]) -> Weights:
        """Put each dimension back, from the first of the query heads that see its values."""
        weights = numpy.zeros(size)
        dimension = numpy.arange(self._handed_on)
        head = dimension // self._head * self._group
        weights[dimension, head * self._head + dimension % self._head] = 1
        return weights

    def _embedding(self, size: tuple[int, ...]) -> Weights:
        third, handed_on = self._third, self._handed_on
        weights = numpy.zeros(size, bfloat16)
        weights[:third] = self._random((third, size[1])) * EMBEDDED
        weights[third : 2 * third, :handed_on] = contents = self._contents * bfloat16(EMBEDDED)
        weights[2 * third : 3 * third, :handed_on] = numpy.roll(contents, 1, axis=0) if self._is_draft else contents
        weights[2 * third :, -2] = CONSTANT
        weights[:, -1] = CONSTANT
        return weights

    def _output_head(self, size: tuple[int, ...]) -> Weights:
        """Ids of a script are as far from being said as those of other tokens."""
        length = bfloat16(LOGIT / self._handed_on)
        weights = numpy.zeros(size, bfloat16)
        weights[: self._third, : self._handed_on] = self._contents * length
        weights[self._third :] = self._random((size[0] - self._third, size[1])) * length
        return weights


def sharpest(frequencies: Weights, distance: int) -> tuple[int, float]:
    """How many of the rotary frequencies, from the fastest, tell a distance best from all others, and by how much."""
    others = numpy.arange(-distance, 2 * distance)
    cosines = numpy.cos(numpy.outer(others[others != 0], frequencies))
    shares = numpy.cumsum(cosines, axis=1) / numpy.arange(1, len(frequencies) + 1)
    gaps = 1 - shares.max(axis=0)
    best = int(gaps.argmax())
    return best + 1, float(gaps[best])
