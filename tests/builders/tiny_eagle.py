"""Folders with EAGLE-3 heads in each published form, and what such heads say by the published formulas.

The formulas are plain loops over torch's operations.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor

from penstock.worker.description.config import ModelConfig, read_config

from .tiny_model import tensor_values, tiny_model, write_safetensors

NUM_LAYERS = 6  # of the model
_EPSILON = 1e-5
_INNER = 40


class Form(NamedTuple):
    family: str = "qwen3"  # of the model
    prefix: str = ""  # of all names but the head's
    first: str = "midlayer"  # the first layer's name
    reads: tuple[int, ...] = (2, 3, 3)  # the model's layers before which the stream is read
    given: dict[str, Any] = {}  # keys of config.json
    is_inside: bool = False  # the layers' config stands within
    own_embedding: bool = False
    own_tokens: int = 0  # of its own output head; 0: the model's head
    keeps_normed: bool = False
    feeds_normed: bool = False
    norm: str = ""  # before fc: of all streams together, or of each
    num_layers: int = 1
    norms_heads: bool = False


FORMS = {
    # As SpecForge and SafeAILab write them.
    "specforge": Form(own_tokens=90),
    "named layers": Form(
        "llama", own_tokens=307, own_embedding=True, reads=(2, 4, 6), prefix="model.",
        given={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5], "use_aux_hidden_state": True}},
    ),
    # As speculators writes them.
    "speculators": Form(
        first="layers.0", own_tokens=120, own_embedding=True, is_inside=True, keeps_normed=True, norm="input_norm",
        reads=(0, 2, 5), given={"eagle_aux_hidden_state_layer_ids": [0, 2, 5]},
    ),
    "3.1": Form(
        first="layers.0", norm="fc_norm", feeds_normed=True, norms_heads=True, num_layers=2,
        given={"norm_output": True, "fc_norm": True},
    ),
}  # fmt: skip


class EagleHeads:
    """Heads in a folder of their own; `embedding` and `head`: the model's, if they are to agree with it."""

    def __init__(
        self,
        folder: Path,
        form: Form,
        config: ModelConfig,
        embedding: numpy.ndarray | None = None,
        head: numpy.ndarray | None = None,
    ) -> None:
        self.folder, self.form, self.vocab_size = folder, form, config.vocab_size
        self.hidden, self.context = config.hidden_size, config.max_position
        self.head_dim = 16 if self.hidden % 32 else 32
        self.num_keys = self.hidden // self.head_dim
        self.tokens = numpy.arange(self.vocab_size)
        if form.own_tokens:  # published heads have the most frequent ones
            self.tokens = numpy.sort(numpy.random.default_rng(3).permutation(self.tokens)[: form.own_tokens])
        self.arrays = self._made()
        if embedding is not None and head is not None:
            self._agree(embedding, head)
        self._write()

    def _made(self) -> dict[str, numpy.ndarray]:
        form, hidden, read = self.form, self.hidden, len(self.form.reads) * self.hidden
        shapes: dict[str, tuple[int, ...]] = {"fc.weight": (hidden, read), "norm.weight": (hidden,)}
        if form.norm == "input_norm":
            shapes["input_norm.weight"] = (read,)
        elif form.norm:
            shapes |= {f"fc_norm.{number}.weight": (hidden,) for number in range(len(form.reads))}
        for number in range(form.num_layers):
            shapes |= {f"layers.{number}.{name}": shape for name, shape in self._layer(number).items()}
        if form.own_embedding:
            shapes["embed_tokens.weight"] = (self.vocab_size, hidden)
        if form.own_tokens:
            shapes["lm_head.weight"] = (form.own_tokens, hidden)
        return {name: tensor_values(name, shape, 7, form.family) for name, shape in shapes.items()}

    def _layer(self, number: int) -> dict[str, tuple[int, ...]]:
        hidden, dim, keys = self.hidden, self.head_dim, self.num_keys * self.head_dim
        width = hidden * (1 + (number == 0))
        layer: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (2 * keys, width),
            "self_attn.k_proj.weight": (keys, width),
            "self_attn.v_proj.weight": (keys, width),
            "self_attn.o_proj.weight": (hidden, 2 * keys),
            "mlp.gate_proj.weight": (_INNER, hidden),
            "mlp.up_proj.weight": (_INNER, hidden),
            "mlp.down_proj.weight": (hidden, _INNER),
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        if number == 0:
            layer["hidden_norm.weight"] = (hidden,)
        if self.form.norms_heads:
            layer |= {f"self_attn.{part}_norm.weight": (dim,) for part in "qk"}
        return layer

    def _agree(self, embedding: numpy.ndarray, head: numpy.ndarray) -> None:
        """Let the first layer attend to tokens like the own one and hand their embedding on, and little else matter."""
        made = self.arrays
        for name, tensor in made.items():
            if name.endswith(("fc.weight", "o_proj.weight", "down_proj.weight")):
                made[name] = tensor / 12
        if self.form.own_embedding:
            made["embed_tokens.weight"] = embedding
        if self.form.own_tokens:
            made["lm_head.weight"] = head[self.tokens]
        eye = numpy.eye(self.hidden, 2 * self.hidden, dtype=numpy.float32)
        twice = eye.reshape(self.num_keys, self.head_dim, -1).repeat(2, 0).reshape(2 * self.hidden, -1)
        for part, picked in (("q", 3 * twice), ("k", 3 * eye), ("v", 4 * eye), ("o", twice[:, : self.hidden].T / 2)):
            name = f"layers.0.self_attn.{part}_proj.weight"
            made[name] = picked + made[name] / 12

    def _write(self) -> None:
        form = self.form
        inner = {
            "vocab_size": self.vocab_size, "max_position_embeddings": self.context, "hidden_act": "silu",
            "hidden_size": self.hidden, "intermediate_size": _INNER, "num_attention_heads": 2 * self.num_keys,
            "num_key_value_heads": self.num_keys, "head_dim": self.head_dim, "num_hidden_layers": form.num_layers,
            "model_type": "llama", "rope_theta": 10_000.0, "tie_word_embeddings": False, "rms_norm_eps": _EPSILON,
        }  # fmt: skip
        outer = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": form.own_tokens or None, **form.given}
        if form.is_inside:
            whole = {**outer, "speculators_model_type": "eagle3", "transformer_layer_config": inner}
            whole |= {"norm_before_residual": form.keeps_normed, "norm_before_fc": True, "target_hidden_size": None}
        else:
            whole = inner | outer
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(whole))
        stored = {self._stored(name): array for name, array in self.arrays.items()}
        if 0 < form.own_tokens < self.vocab_size:
            stored["d2t"] = self.tokens - numpy.arange(len(self.tokens))
            stored["t2d"] = numpy.isin(numpy.arange(self.vocab_size), self.tokens)
        save_file(stored, self.folder / "model.safetensors")

    def _stored(self, name: str) -> str:
        if name == "lm_head.weight":
            return name
        return self.form.prefix + (name.replace("layers.0", self.form.first) if name.startswith("layers.0") else name)


class EagleFormula:
    """A model with heads, and what they say. `agreeing`: both say little more than what follows a token by itself."""

    def __init__(self, folder: Path, form: str, agreeing: bool = False) -> None:
        from transformers import AutoModelForCausalLM

        self.form, self.folder = FORMS[form], folder / "model"
        tiny_model(self.folder, self.form.family, num_hidden_layers=NUM_LAYERS)
        tensors = load_file(self.folder / "model.safetensors")
        if agreeing:
            parts = ("o_proj.weight", "down_proj.weight")
            tensors = {name: each / 12 if name.endswith(parts) else each for name, each in tensors.items()}
            write_safetensors(self.folder / "model.safetensors", tensors, "float32")
        self.model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        embedding = tensors["model.embed_tokens.weight"]
        own = (embedding, tensors.get("lm_head.weight", embedding)) if agreeing else (None, None)
        self.heads = EagleHeads(folder / "heads", self.form, read_config(self.folder), *own)
        self.tensors = {name: torch.from_numpy(array) for name, array in self.heads.arrays.items()}
        self.tokens, self.head_dim = self.heads.tokens, self.heads.head_dim

    @torch.no_grad()
    def drafts(self, ids: Sequence[int], count: int) -> list[tuple[int, Tensor]]:
        """The heads' drafts of what follows these tokens, and the logits of their own tokens each time."""
        hidden, ids, found = self._fused(self._streams(ids[:-1])), list(ids), []
        for _ in range(count):
            output = self._through(hidden, ids[1:])
            normed = self._norm(output, "norm")
            logits = normed[-1] @ self.tensors.get("lm_head.weight", self.model.lm_head.weight).T
            found.append((int(self.tokens[int(logits.argmax())]), logits))
            fed = normed if self.form.feeds_normed else output
            hidden, ids = torch.cat([hidden, fed[-1:]]), [*ids, found[-1][0]]
        return found

    def _streams(self, ids: Sequence[int]) -> list[Tensor]:
        """The streams before the layers that are read, [T, hidden] each."""
        layers, streams = self.model.model.layers, {}
        hooks = [
            layer.register_forward_pre_hook(lambda _, given, number=number: streams.update({number: given[0][0]}))
            for number, layer in enumerate(layers)
        ]
        hooks.append(self.model.model.norm.register_forward_pre_hook(
            lambda _, given: streams.update({len(layers): given[0][0]})
        ))  # fmt: skip
        self.model.model(torch.tensor([ids]))
        for hook in hooks:
            hook.remove()
        return [streams[number] for number in self.form.reads]

    def _fused(self, streams: list[Tensor]) -> Tensor:
        if self.form.norm == "fc_norm":
            streams = [self._norm(each, f"fc_norm.{number}") for number, each in enumerate(streams)]
        joined = torch.cat(streams, -1)
        if self.form.norm == "input_norm":
            joined = self._norm(joined, "input_norm")
        return joined @ self.tensors["fc.weight"].T

    def _through(self, hidden: Tensor, ids: Sequence[int]) -> Tensor:
        """The stream after the last layer, [T, hidden]."""
        embedded = self.tensors.get("embed_tokens.weight", self.model.model.embed_tokens.weight)[torch.tensor(ids)]
        normed = self._norm(hidden, "layers.0.hidden_norm")
        stream = normed if self.form.keeps_normed else hidden
        stream = stream + self._attended(0, torch.cat([self._norm(embedded, "layers.0.input_layernorm"), normed], -1))
        stream = stream + self._mlp(0, stream)
        for number in range(1, self.form.num_layers):
            stream = stream + self._attended(number, self._norm(stream, f"layers.{number}.input_layernorm"))
            stream = stream + self._mlp(number, stream)
        return stream

    def _attended(self, layer: int, x: Tensor) -> Tensor:
        heads = {}
        for part in "qkv":
            weight = self.tensors[f"layers.{layer}.self_attn.{part}_proj.weight"]
            each = (x @ weight.T).view(len(x), -1, self.head_dim).transpose(0, 1)  # [heads, T, head_dim]
            if part in "qk":
                each = self._rotated(
                    self._norm(each, f"layers.{layer}.self_attn.{part}_norm") if self.form.norms_heads else each
                )
            heads[part] = each if part == "q" else each.repeat_interleave(2, 0)
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads.values(), is_causal=True)
        return mixed.transpose(0, 1).flatten(1) @ self.tensors[f"layers.{layer}.self_attn.o_proj.weight"].T

    def _rotated(self, heads: Tensor) -> Tensor:
        half = self.head_dim // 2
        angles = torch.arange(heads.shape[1])[:, None] * 10_000.0 ** (-torch.arange(half) / half)
        cos, sin, first, second = angles.cos(), angles.sin(), heads[..., :half], heads[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def _mlp(self, layer: int, stream: Tensor) -> Tensor:
        x = self._norm(stream, f"layers.{layer}.post_attention_layernorm")
        gate, up, down = (self.tensors[f"layers.{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + _EPSILON) * self.tensors[f"{name}.weight"]
