"""Checkpoints with heads for further tokens (MTP), and what such a head says by the published formula.

The formula is a loop over transformers' own modules: a head's layer is the like one of the model, with other weights.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from safetensors.numpy import load_file
from torch import Tensor

from .tiny_configs import COMMON, FAMILIES
from .tiny_model import checkpoint_shapes, tensor_values, tiny_model, write_safetensors


class Stored(NamedTuple):
    """How a family's checkpoints store a head."""

    like: int  # the model's layer that it resembles
    parts: str  # before the names of the norms and of the projection
    embedding_norm: str
    hidden_norm: str
    projection: str
    layer: str
    norm: str  # before the output head
    feeds_normed: bool  # a further head reads its output behind that norm


_BEHIND = Stored(
    1, "model.layers.2.", "enorm", "hnorm", "eh_proj", "model.layers.2.", "model.layers.2.shared_head.norm", False
)  # fmt: skip
_BESIDE = Stored(1, "mtp.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "mtp.layers.0.", "mtp.norm", True)
STORED = {
    "deepseek_v3": _BEHIND,
    "glm4_moe": _BEHIND,
    "qwen3_5_text": _BESIDE,
    "qwen3_next": _BESIDE,
    "ernie4_5": Stored(
        1, "model.", "mtp_emb_norm.0", "mtp_hidden_norm.0", "mtp_linear_proj.0", "model.mtp_block.0.", "model.norm",
        True,
    ),
}  # fmt: skip


class HeadFormula:
    """One checkpoint's model and head; `agreeing`: both say little more than what follows a token by itself."""

    def __init__(self, folder: Path, family: str, agreeing: bool = False) -> None:
        from transformers import AutoModelForCausalLM

        self.folder, self.stored = folder, STORED[family]
        tiny_model(folder, family)
        config = {**COMMON, **FAMILIES[family]}
        self.is_less_one = family.startswith("qwen3_")
        tensors = load_file(folder / "model.safetensors")
        self.tensors = tensors | self._head(family, config)
        if agreeing:
            self._agree(config["hidden_size"])
        write_safetensors(folder / "model.safetensors", self.tensors, "float32")
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.layer = self._loaded_layer(folder.parent / f"{folder.name} head")

    def _head(self, family: str, config: dict[str, Any]) -> dict[str, numpy.ndarray]:
        stored, hidden = self.stored, config["hidden_size"]
        names = (stored.embedding_norm, stored.hidden_norm)
        shapes: dict[str, tuple[int, ...]] = {f"{stored.parts}{name}.weight": (hidden,) for name in names}
        shapes[f"{stored.parts}{stored.projection}.weight"] = (hidden, 2 * hidden)
        if stored.norm != "model.norm":
            shapes[f"{stored.norm}.weight"] = (hidden,)
        like = f"model.layers.{stored.like}."
        shapes |= {
            f"{stored.layer}{name.removeprefix(like)}": shape
            for name, shape in checkpoint_shapes(config).items()
            if name.startswith(like)
        }
        return {name: tensor_values(name, shape, 5, family) for name, shape in shapes.items()}

    def _agree(self, hidden: int) -> None:
        for name, tensor in self.tensors.items():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "w2.weight")):
                self.tensors[name] = tensor / 12
        projection = f"{self.stored.parts}{self.stored.projection}.weight"
        self.tensors[projection] = numpy.eye(hidden, 2 * hidden, dtype=numpy.float32) + self.tensors[projection] / 12

    def _loaded_layer(self, folder: Path) -> torch.nn.Module:
        """The head's layer, loaded in the place of the one that it resembles."""
        from transformers import AutoModelForCausalLM

        stored, replaced = self.stored, f"model.layers.{self.stored.like}."
        folder.mkdir()
        shutil.copy(self.folder / "config.json", folder)
        own = {name: each for name, each in self.tensors.items() if name.startswith(stored.layer)}
        kept = {name: each for name, each in self.tensors.items() if name not in own}
        own = {f"{replaced}{name.removeprefix(stored.layer)}": each for name, each in own.items()}
        write_safetensors(folder / "model.safetensors", kept | own, "float32")
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).model.layers[stored.like]

    @torch.no_grad()
    def drafts(self, ids: Sequence[int], count: int) -> list[int]:
        """The head's drafts of what follows these tokens."""
        # [T - 1, hidden]: hidden states before the last token, each with the token behind it
        states = self.model.model(torch.tensor([ids[:-1]])).last_hidden_state[0]
        inputs = self._joined(ids[1:], states)
        found: list[int] = []
        for _ in range(count):
            output = self._through_layer(inputs)
            found.append(int(self.model.lm_head(self._norm(output[-1], self.stored.norm)).argmax()))
            fed = self._norm(output[-1], self.stored.norm) if self.stored.feeds_normed else output[-1]
            inputs = torch.cat([inputs, self._joined(found[-1:], fed[None])])
        return found

    def _joined(self, token_ids: Sequence[int], states: Tensor) -> Tensor:
        embedded = self.model.model.embed_tokens(torch.tensor(token_ids))
        parts = self.stored.parts
        embedded, states = (
            self._norm(each, f"{parts}{name}")
            for each, name in ((embedded, self.stored.embedding_norm), (states, self.stored.hidden_norm))
        )
        return (
            torch.cat([embedded, states], -1)
            @ torch.from_numpy(self.tensors[f"{parts}{self.stored.projection}.weight"]).T
        )

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = torch.from_numpy(self.tensors[f"{name}.weight"]) + self.is_less_one
        epsilon = self.model.config.rms_norm_eps
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight

    def _through_layer(self, inputs: Tensor) -> Tensor:
        positions = torch.arange(len(inputs))[None]
        rotation = self.model.model.rotary_emb(inputs[None], positions)
        mask = torch.full((len(inputs), len(inputs)), -torch.inf).triu(1)[None, None]
        found = self.layer(inputs[None], position_embeddings=rotation, attention_mask=mask, position_ids=positions)
        return (found[0] if isinstance(found, tuple) else found)[0]
