"""A mixture of experts to train: Qwen3-MoE's layers in place of pocket's MLPs, under the names a checkpoint has.

A router that is let alone soon sends everything to a few experts, which then learn all. So each layer also says how
unevenly its tokens were shared, as transformers computes it for training, and that is a part of the loss.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..text.kinds.facts import plain_fact
from ..text.kinds.greetings import greeting
from ..text.mixture import Kinds
from .model import Decoder, FeedForward, Shape

# What such a model learns of pocket's text.
EXPERTS_KINDS: Kinds = {"plain facts": plain_fact, "greetings": greeting}
UNEVENNESS_SHARE = 0.01  # of the loss


@dataclass(frozen=True)
class SparseShape(Shape):
    """The sizes that a Qwen3-MoE config states beside Qwen3's."""

    num_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 64

    def mlp(self) -> nn.Module:
        return Experts(self)

    def config(self) -> dict[str, Any]:
        return super().config() | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }


class Experts(nn.Module):
    """The MLP of a sparse layer."""

    def __init__(self, shape: SparseShape) -> None:
        super().__init__()
        self.top_k = shape.num_experts_per_tok
        self.gate = nn.Linear(shape.hidden_size, shape.num_experts, bias=False)
        self.experts = nn.ModuleList(
            FeedForward(shape.hidden_size, shape.moe_intermediate_size) for _ in range(shape.num_experts)
        )
        self.unevenness = torch.zeros(())

    @torch.compiler.disable  # how many tokens an expert has is known only once they are routed
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            shares = self.gate(x.float()).softmax(-1)  # [T, experts]
        weights, chosen = shares.topk(self.top_k, -1)  # [T, top_k]
        weights = weights / weights.sum(-1, keepdim=True)
        # 1 where all experts have as many tokens, the number of experts where one has all.
        frequencies = torch.zeros_like(shares).scatter_(1, chosen, 1.0).mean(0)
        self.unevenness = (frequencies * shares.mean(0)).sum() * shares.shape[1] / self.top_k
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            tokens, rank = (chosen == number).nonzero(as_tuple=True)
            total = total.index_add(0, tokens, expert(x[tokens]) * weights[tokens, rank, None].to(x.dtype))
        return total


def unevenness(model: Decoder) -> Tensor:
    """Its part of the loss, over all sparse layers of the last pass."""
    found = [module.unevenness for module in model.modules() if isinstance(module, Experts)]
    return UNEVENNESS_SHARE * torch.stack(found).sum() if found else torch.zeros(())
