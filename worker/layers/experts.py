"""The MLP of a sparse layer: a router chooses a few experts for each token; some models add one shared MLP for all.

Each rank has a slice of every expert, or with `expert_parallel` some whole experts. Either way it computes its part of
each token's sum, and the ranks' parts are added up.
"""

import math
from dataclasses import replace

import numpy

from ...kernels.experts import ExpertWeights, GatedActivation, Routing
from ...kernels.operands import Vector
from ...kernels.operations import PackedExperts, Routes, StepField
from ...kernels.stored.mxfp4 import BLOCK
from ...kernels.stored.parts import transposed
from ...records import dataclass
from ..description.config import ModelConfig
from ..description.parts.mixtures import ExpertsConfig, NormsBeside, Stack
from ..weights.piece import CheckpointPiece, Part
from ..weights.stacked_matrix import StackedMatrix, gate_and_up, is_stacked
from ..weights.weights import Rows, Weights
from .linear import EXACT, Linear
from .mlp import MLP
from .norm import Norm

TEXT, MEDIA = 0, 1  # the kinds of tokens


class Router:
    """Chooses the experts of each token."""

    def __init__(self, weights: Weights, hidden_size: int, config: ExpertsConfig) -> None:
        self.ops = weights.ops
        self.routing = Routing(
            num_experts=config.num_experts,
            top_k=config.top_k,
            score=config.score,
            num_groups=config.num_groups,
            kept_groups=config.kept_groups,
            group_score=config.group_score,
            renormalizes=config.renormalizes,
            least_sum=config.least_sum,
            scale=config.scale,
        )
        names = config.names
        self.logits = _logits(weights.at(names.router), config, hidden_size)
        self.choice_bias = None
        if names.choice_bias and weights.has(names.choice_bias):
            rows, own = names.choice_bias_rows, names.choice_bias_row
            shape, part = (config.num_experts,), None
            if rows:
                shape, part = (rows, config.num_experts), (0, own, own + 1)  # type: ignore[assignment]
            self.choice_bias = weights.exact_vector(names.choice_bias, shape, part)  # [experts]
        self.factors = weights.exact_vector(names.factors, (config.num_experts,)) if names.factors else None

    def __call__(self, x: Rows, *kinds: StepField) -> Routes:
        """Route the tokens. `kinds` are the kinds of all tokens; only tokens of this router's kind get experts."""
        return self.ops.route(self.logits(x), self.choice_bias, self.routing, self.factors, *kinds)


class Experts:
    """Σ over a token's experts of weight × down(activation(gate_up(x))), and the shared MLP's share."""

    def __init__(self, weights: Weights, hidden_size: int, config: ExpertsConfig) -> None:
        self.ops = weights.ops
        self.router = Router(weights, hidden_size, config)
        found = expert_weights(weights.at(config.names.experts), hidden_size, config)
        self.experts = fitting_experts(weights, found, hidden_size)
        self.is_widened = self.experts is not found  # its two products had different number formats
        self.shared = self.shared_gate = None
        if config.shared_width:
            self.shared = MLP(weights.at(config.names.shared), hidden_size, config.shared_width)
            if config.names.shared_gate:
                self.shared_gate = exact_linear(weights.at(config.names.shared_gate), 1, hidden_size)

    @property
    def has_int8(self) -> bool:
        return "int8" in (getattr(each, "kind", "") for each in (self.experts.gate_up, self.experts.down))

    def __call__(self, x: Rows, adapted: StepField | None = None) -> Rows:
        return self.with_shared(self.ops.experts(x, self.router(x), self.experts), x, adapted)

    def with_shared(self, total: Rows, x: Rows, adapted: StepField | None) -> Rows:
        """Add the shared MLP to this rank's sum of experts, [T, hidden], and add up the ranks."""
        if self.shared is not None:
            update = self.shared.of_rank(x, adapted)  # [T, hidden]
            if self.shared_gate is None:
                total = self.ops.add(total, update)
            else:
                total = self.ops.add_gated(total, update, self.shared_gate(x))
        return self.ops.all_reduce(total)  # [T, hidden]


def _logits(weights: Weights, config: ExpertsConfig, hidden_size: int) -> Linear:
    names = config.names
    if not names.router_is_transposed:
        return exact_linear(weights, config.num_experts, hidden_size, names.router_has_bias)
    piece = CheckpointPiece(names.router_weight, (hidden_size, config.num_experts))
    weight = weights.packed_of("transposed", [piece], transposed, EXACT)
    return Linear(weight, [], weights)


def exact_linear(weights: Weights, out_features: int, in_features: int, has_bias: bool = False) -> Linear:
    """Load a small float32 product, whole on each rank, whatever the format of the others."""
    weight = weights.packed_as(EXACT, [CheckpointPiece("weight", (out_features, in_features))])
    biases = [weights.read("bias", (out_features,))] if has_bias else []
    return Linear(weight, biases, weights)


def fitting_experts(weights: Weights, found: ExpertWeights, hidden_size: int) -> ExpertWeights:
    """Give both products one number format. Widened weights are cached and mapped like packed ones."""
    cache, names = weights.placement.cache, ("gate_up", "down")
    if cache is None:
        return weights.ops.fitting_experts(found, hidden_size)
    keys = {name: f"fitting {weights.prefix}{name}" for name in names}
    kept: dict[str, PackedExperts] = {
        name: weight for name, key in keys.items() if (weight := cache.weight(key)) is not None
    }
    if kept:
        return replace(found, **kept)
    made = weights.ops.fitting_experts(found, hidden_size)
    widened = [name for name in names if getattr(made, name) is not getattr(found, name)]
    kept = {name: cache.add(keys[name], getattr(made, name)) for name in widened}
    return replace(made, **kept) if kept else found


@dataclass(frozen=True)
class _Share:
    """This rank's share of a layer's experts."""

    experts: tuple[int, int]  # first, last + 1
    inner: tuple[int, int]  # range of the inner layer
    is_by_expert: bool

    @classmethod
    def of(cls, weights: Weights, config: ExpertsConfig) -> "_Share":
        placement, whole = weights.placement, (0, config.num_experts)
        if placement.expert_parallel:
            return cls(placement.ranks.span(config.num_experts), (0, config.width), True)
        if config.names.stack and weights.has(f"{config.names.stack.down}_blocks"):
            # Never split a block that shares an exponent.
            first, last = placement.ranks.span(config.width // BLOCK)
            return cls(whole, (first * BLOCK, last * BLOCK), False)
        return cls(
            whole,
            weights.inner_span(config.width, f"{config.names.first_expert}.{config.names.gate_up_down[2]}"),
            False,
        )

    def part(self, dim: int, times: int = 1) -> Part:
        """Cut this rank's part out of a tensor [experts, …], whose `dim` holds the inner layer."""
        return (0, *self.experts) if self.is_by_expert else (dim, self.inner[0] * times, self.inner[1] * times)


def expert_weights(weights: Weights, hidden_size: int, config: ExpertsConfig) -> ExpertWeights:
    share = _Share.of(weights, config)
    first, last = share.experts
    biases: tuple[Vector | None, Vector | None] = (None, None)
    stack = config.names.stack
    if stack is not None and is_stacked(weights, stack):
        matrices = _stacked_matrices(weights, hidden_size, config, stack, share)
    else:
        matrices = _named_matrices(weights, hidden_size, config, share)
    if stack is not None:
        biases = _stacked_biases(weights, hidden_size, config, stack, share)
    width = share.inner[1] - share.inner[0]
    return ExpertWeights(*matrices, *biases, first, last - first, width, GatedActivation(*config.activation))


def _named_matrices(
    weights: Weights, hidden_size: int, config: ExpertsConfig, share: _Share
) -> tuple[PackedExperts, PackedExperts]:
    """Load gate-up and down weights of experts stored in separate tensors."""
    gate, up, down = config.names.gate_up_down
    rows: Part = (0, *share.inner)
    columns: Part = (1, *share.inner)
    before = config.names.first_expert
    numbers = range(before + share.experts[0], before + share.experts[1])
    gate_up_pieces = [
        [CheckpointPiece(f"{number}.{name}.weight", (config.width, hidden_size), rows) for name in (gate, up)]
        for number in numbers
    ]
    down_pieces = [
        [CheckpointPiece(f"{number}.{down}.weight", (hidden_size, config.width), columns)] for number in numbers
    ]
    for number in set(range(before, before + config.num_experts)).difference(numbers):
        for name in (gate, up, down):
            weights.pass_over(f"{number}.{name}.weight")
    return weights.packed_experts(gate_up_pieces), weights.packed_experts(down_pieces)


def _stacked_matrices(
    weights: Weights, hidden_size: int, config: ExpertsConfig, stack: Stack, share: _Share
) -> tuple[PackedExperts, PackedExperts]:
    """Load them from tensors that hold the matrices of all experts."""
    count = share.experts[1] - share.experts[0]
    gate, _, down = config.names.gate_up_down
    gate_up_shape = config.num_experts, 2 * config.width, hidden_size
    down_shape = config.num_experts, hidden_size, config.width
    both = StackedMatrix(weights, stack.gate_up, gate_up_shape, stack.is_transposed, share.part(1, 2))
    last = StackedMatrix(weights, stack.down, down_shape, stack.is_transposed, share.part(2))
    return (
        weights.packed_stack(f"0.{gate}", both.pieces, lambda: map(gate_and_up, both.matrices()), count),
        weights.packed_stack(f"0.{down}", last.pieces, lambda: ([matrix] for matrix in last.matrices()), count),
    )


def _stacked_biases(
    weights: Weights, hidden_size: int, config: ExpertsConfig, stack: Stack, share: _Share
) -> tuple[Vector | None, Vector | None]:
    """Load the biases of gate and up, [experts, 2 × width], the gate's first, and of down, [experts, hidden]."""
    gate_up_bias = down_bias = None
    if weights.has(name := f"{stack.gate_up}_bias"):
        alternating = weights.read(name, (config.num_experts, 2 * config.width), share.part(1, 2))
        gate_up_bias = weights.ops.vector(numpy.concatenate((alternating[:, 0::2], alternating[:, 1::2]), 1))
    if weights.has(name := f"{stack.down}_bias"):
        # It belongs to an expert's sum over the ranks, so one rank adds it.
        if share.is_by_expert or weights.placement.ranks.rank == 0:
            part = share.part(0) if share.is_by_expert else None
            down_bias = weights.vector(name, (config.num_experts, hidden_size), part)
        else:
            weights.pass_over(name)
    return gate_up_bias, down_bias


class ExpertsBesideMLP(Experts):
    """norm(mlp(norm(x))) + norm(experts(norm(x))) of the stream x; all tokens pass the MLP."""

    def __init__(
        self, weights: Weights, config: ModelConfig, experts: ExpertsConfig, norms: NormsBeside, mlp: MLP
    ) -> None:
        size, epsilon, form = config.hidden_size, config.rms_norm_eps, config.family.norm
        super().__init__(weights, size, experts)
        self.mlp = mlp
        self.before_mlp, self.after_mlp, self.before_experts, self.after_experts = (
            Norm(weights.at(name), size, epsilon, form)
            for name in (norms.before_mlp, norms.after_mlp, norms.before_experts, norms.after_experts)
        )
        module, name = norms.before_router
        self.before_router = Norm(weights.at(module), size, epsilon, form, scale=1 / math.sqrt(size), name=name)

    def __call__(self, stream: Rows, adapted: StepField | None = None) -> Rows:
        update = self.after_mlp(self.mlp(self.before_mlp(stream), adapted))  # [T, hidden]
        routes = self.router(self.before_router(stream))
        total = self.ops.experts(self.before_experts(stream), routes, self.experts)  # [T, hidden], this rank's share
        return self.ops.add(update, self.after_experts(self.ops.all_reduce(total)))  # [T, hidden]


class ExpertsByKind(Experts):
    """Separate experts and routers for text and media tokens.

    The shared MLP serves all tokens.
    """

    def __init__(self, weights: Weights, hidden_size: int, text: ExpertsConfig, media: ExpertsConfig) -> None:
        super().__init__(weights, hidden_size, text)
        self.media_router = Router(weights, hidden_size, media)
        inner = weights.at(media.names.experts)
        self.media_experts = fitting_experts(inner, expert_weights(inner, hidden_size, media), hidden_size)

    def of_kinds(self, x: Rows, kinds: StepField | None, adapted: StepField | None) -> Rows:
        """[T, hidden]; without kinds all tokens are text."""
        if kinds is None:
            return self(x, adapted)
        total = self.ops.experts(x, self.router(x, kinds, TEXT), self.experts)  # [T, hidden], of this rank's share
        total = self.ops.add(total, self.ops.experts(x, self.media_router(x, kinds, MEDIA), self.media_experts))
        return self.with_shared(total, x, adapted)
