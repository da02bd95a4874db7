"""The optimizer: Muon for the layers' matrices, AdamW for the embedding, the norms and routers.

Muon takes the momentum's nearest orthogonal matrix as its step, which on this text needs several times fewer steps than
AdamW. Matrices of one shape are orthogonalized together.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .precision import COMPUTED

_TABLES = ("embed_tokens.weight", "pos_embed.weight", ".mlp.gate.weight")  # a row for each token, place or expert
# A convolution whose windows never overlap is a matrix over pixels, whose rows are many times as long as normed ones:
# at the full rate a plain ground would drown what is added to it.
_WINDOW_SHARE = 0.1
# The quintic whose iteration drives all singular values towards one.
_QUINTIC = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[dict[str, Any]], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": 0.01})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for alike in by_shape.values():
                self._step_alike(alike, group)

    def _step_alike(self, alike: list[nn.Parameter], group: dict[str, float]) -> None:
        pushes = []
        for parameter in alike:
            momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            momentum.lerp_(parameter.grad, 1 - group["momentum"])
            pushes.append(parameter.grad.lerp(momentum, group["momentum"]).flatten(1))
        rows, columns = pushes[0].shape
        scale = group["lr"] * max(1.0, rows / columns) ** 0.5
        for parameter, direction in zip(alike, orthogonal(torch.stack(pushes)), strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(direction.to(parameter.dtype).view_as(parameter), alpha=scale)


def orthogonal(matrices: Tensor) -> Tensor:
    """A stack of matrices with their singular values brought near one."""
    if matrices.shape[-2] > matrices.shape[-1]:
        return orthogonal(matrices.mT).mT
    x = matrices.to(COMPUTED)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(4):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x


def optimizers(model: nn.Module, matrix_rate: float, other_rate: float) -> list[torch.optim.Optimizer]:
    """Muon and AdamW, each over its own; every group remembers its highest rate as `peak`."""
    matrices, windows, others = [], [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and not name.endswith(_TABLES)
        (matrices if is_matrix else windows if parameter.ndim > 2 else others).append(parameter)
    groups: list[dict[str, Any]] = [{"params": matrices}]
    if windows:
        groups.append({"params": windows, "lr": matrix_rate * _WINDOW_SHARE})
    both = [Muon(groups, matrix_rate), torch.optim.AdamW(others, other_rate, betas=(0.9, 0.95), weight_decay=0.0)]
    for optimizer in both:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return both
