"""What the tensors of mixtures of experts are called in GGUF files: one tensor has a matrix of every expert.

Each expert's matrix is shown as a tensor of its own, as most published checkpoints have it; old files have it so.
"""

from ...description.config import ModelConfig
from ...description.parts.mixtures import ExpertsConfig
from .text_views import Views
from .views import Made, Rows, alternating

_PARTS = ("gate", "up", "down")


def add_experts(views: Views, config: ModelConfig) -> None:
    experts = config.experts
    if experts is None:
        return
    for number, is_sparse in enumerate(experts.is_sparse):
        if is_sparse:
            block = experts.names.within(f"model.layers.{number}")
            _add_router(views, experts, block, f"blk.{number}")
            _add_matrices(views, config.hidden_size, experts, block, f"blk.{number}")
            _add_shared(views, experts, block, f"blk.{number}")


def _add_router(views: Views, experts: ExpertsConfig, block: str, stored: str) -> None:
    names = experts.names
    views.module(f"{block}.{names.router}", f"{stored}.ffn_gate_inp")
    if names.choice_bias is not None:
        views.tensor(f"{block}.{names.choice_bias}", f"{stored}.exp_probs_b.bias", f"{stored}.exp_probs_b")
    if names.factors is not None:
        views.tensor(f"{block}.{names.factors}", f"{stored}.ffn_down_exps.scale")
    if names.beside is not None:
        where, name = names.beside.before_router
        views.tensor(f"{block}.{where}.{name}", f"{stored}.ffn_gate_inp.scale")


def _add_matrices(views: Views, hidden_size: int, experts: ExpertsConfig, block: str, stored: str) -> None:
    names = experts.names
    for part, own in zip(_PARTS, names.gate_up_down, strict=True):
        rows = hidden_size if part == "down" else experts.width
        for number in range(experts.num_experts):
            shown = f"{block}.{names.experts}.{names.first_expert + number}.{own}.weight"
            views.add(shown, Rows(f"{stored}.ffn_{part}.{number}.weight"))
            views.add(shown, _of_expert(f"{stored}.ffn_{part}_exps.weight", number, rows))
            if part != "down":  # both in one tensor
                both = f"{stored}.ffn_gate_up_exps.weight"
                views.add(shown, _of_expert(both, 2 * number + (part == "up"), rows))
    if names.stack is not None:
        biases = tuple(f"{stored}.ffn_{part}_exps.bias" for part in ("gate", "up"))
        views.add(f"{block}.{names.experts}.{names.stack.gate_up}_bias", Made(biases, alternating))
        views.tensor(f"{block}.{names.experts}.{names.stack.down}_bias", f"{stored}.ffn_down_exps.bias")


def _of_expert(tensor: str, number: int, rows: int) -> Rows:
    return Rows(tensor, slice(number * rows, (number + 1) * rows))


def _add_shared(views: Views, experts: ExpertsConfig, block: str, stored: str) -> None:
    if not experts.shared_width:
        return
    for part in _PARTS:
        views.module(f"{block}.{experts.names.shared}.{part}_proj", f"{stored}.ffn_{part}_shexp")
    if experts.names.shared_gate is not None:
        views.module(f"{block}.{experts.names.shared_gate}", f"{stored}.ffn_gate_inp_shexp")
