"""The network that is trained: Qwen3's decoder in a few lines, its tensors under the names a checkpoint has.

Plain torch, for training alone; answers are computed by the package's own worker. Keys and values are not kept: a row is
read whole. Knows nothing of text, tokens' meaning or optimizers.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The sizes that a Qwen3 config states, under its names; pocket's are the defaults."""

    vocab_size: int
    hidden_size: int = 256
    intermediate_size: int = 512
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 100_000.0
    rms_norm_eps: float = 1e-6

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


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim, self.eps = shape.head_dim, shape.rms_norm_eps
        self.group = shape.num_attention_heads // shape.num_key_value_heads
        queries = shape.num_attention_heads * shape.head_dim
        keys = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        rows, length, _ = x.shape
        heads = (rows, length, -1, self.head_dim)
        query = rotated(self.q_norm(self.q_proj(x).view(heads)), cosine, sine).transpose(1, 2)
        key = rotated(self.k_norm(self.k_proj(x).view(heads)), cosine, sine).transpose(1, 2)
        value = self.v_proj(x).view(heads).transpose(1, 2)
        key, value = key.repeat_interleave(self.group, 1), value.repeat_interleave(self.group, 1)
        mixed = functional.scaled_dot_product_attention(query.to(value.dtype), key.to(value.dtype), value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token ids to hidden states; the head is the embedding itself."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # What adds to the residual stream starts at nothing, so that a fresh layer is no noise.
                nn.init.normal_(parameter, std=0.0 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.04)

    def forward(self, tokens: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.norm(x)

    def rotations(self, length: int) -> tuple[Tensor, Tensor]:
        exponents = torch.arange(0, self.shape.head_dim, 2).float() / self.shape.head_dim
        angles = torch.outer(torch.arange(length).float(), self.shape.rope_theta**-exponents)
        return angles.cos()[:, None, :], angles.sin()[:, None, :]


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
