"""The network that is trained: Qwen3's decoder in a few lines, its tensors under the names a checkpoint has.

Plain torch, for training alone; answers are computed by the package's own worker. Keys and values are not kept: a row
is read whole.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..training.precision import COMPUTED


@dataclass(frozen=True)
class Shape:
    """The sizes that a Qwen3 config states, under its names; pocket's are the defaults."""

    vocab_size: int
    hidden_size: int = 256
    intermediate_size: int = 768
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 100_000.0
    rms_norm_eps: float = 1e-6

    def mlp(self) -> nn.Module:
        """A layer's, fresh."""
        return FeedForward(self.hidden_size, self.intermediate_size)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            **asdict(self),
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "max_position_embeddings": 32768,
            "rope_scaling": None,
            "sliding_window": None,
            "use_sliding_window": False,
            "tie_word_embeddings": True,
            "use_cache": True,
            "torch_dtype": "bfloat16",
        }


class Norm(nn.Module):
    """RMS norm, given on in the numbers in which the products behind it compute."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return (x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight).to(COMPUTED)


@dataclass(frozen=True)
class Rows:
    """The division of flat tokens into groups of rows of one length, and every token's rotation.

    Long rows would cost short ones dearly in attention, and everything else does not care where a row ends.
    """

    shapes: tuple[tuple[int, int], ...]
    cosine: Tensor
    sine: Tensor

    def sizes(self) -> list[int]:
        return [count * length for count, length in self.shapes]


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.group = shape.num_attention_heads // shape.num_key_value_heads
        queries = shape.num_attention_heads * shape.head_dim
        keys = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)
        self.q_norm = Norm(shape.head_dim, eps=shape.rms_norm_eps)
        self.k_norm = Norm(shape.head_dim, eps=shape.rms_norm_eps)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head."""
        heads = (x.shape[0], -1, self.head_dim)
        query = rotated(self.q_norm(self.q_proj(x).view(heads)), cosine, sine)
        key = rotated(self.k_norm(self.k_proj(x).view(heads)), cosine, sine).repeat_interleave(self.group, 1)
        return query, key, self.v_proj(x).view(heads).repeat_interleave(self.group, 1)


class FeedForward(nn.Module):
    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, width, bias=False)
        self.up_proj = nn.Linear(hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = shape.mlp()

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        parts = _compiled(_before_attention)(self, x, rows.cosine, rows.sine)
        mixed = [
            attended(*(part.unflatten(0, shape).transpose(1, 2) for part in group))
            for shape, *group in zip(rows.shapes, *(part.split(rows.sizes()) for part in parts))
        ]
        flat = torch.cat([part.transpose(1, 2).flatten(0, 1).flatten(1) for part in mixed])
        return _compiled(_after_attention)(self, x, flat)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Small operations one by one take longer than the products between them. Attention, whose rows have other shapes
    in every step, gains nothing. Here, since all that torch compiles with is imported on the way."""
    return torch.compile(function, dynamic=True)


def _before_attention(layer: Layer, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return layer.self_attn(layer.input_layernorm(x), cosine, sine)


def _after_attention(layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
    x = x + layer.self_attn.o_proj(mixed)
    return x + layer.mlp(layer.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token ids to hidden states; the head is the embedding itself."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, eps=shape.rms_norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # What adds to the residual stream starts at nothing, so that a fresh layer is no noise.
                nn.init.normal_(parameter, std=0.0 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.04)

    def forward(self, tokens: Tensor, shapes: Sequence[tuple[int, int]]) -> Tensor:
        """Hidden states of flat `tokens`, which are groups of rows one behind the other: (rows, length) of each."""
        rows = self._rows(shapes, tokens.device)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, rows)
        return self.norm(x)

    def _rows(self, shapes: Sequence[tuple[int, int]], device: torch.device) -> Rows:
        positions = torch.cat([torch.arange(length, device=device).repeat(count) for count, length in shapes])
        exponents = torch.arange(0, self.shape.head_dim, 2, device=device).float() / self.shape.head_dim
        angles = torch.outer(positions.float(), self.shape.rope_theta**-exponents)[:, None, :]
        return Rows(tuple(shapes), angles.cos().to(COMPUTED), angles.sin().to(COMPUTED))


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention in its plain form: for rows as short as these, torch's fused one is several times slower."""
    length = query.shape[-2]
    later = torch.full((length, length), float("-inf"), dtype=query.dtype, device=query.device).triu(1)
    scores = query * query.shape[-1] ** -0.5 @ key.mT + later
    return scores.softmax(-1).to(value.dtype) @ value


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
