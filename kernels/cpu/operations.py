"""The operations that layers call, as native calls: each adds its kernel call to the program that is being recorded.

The interface is `kernels/operations.py`; here `Buffer`s replace tensors, and the `Step` of a layer's group
that of its rows and its rotation.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof

import numpy

from ..arrays import FLOAT32, Array, address
from ..experts import ExpertWeights, Routing
from ..lora import LoraConfig
from ..operands import HeadLayout, LatentLayout, Scoring, WeightFormat
from ..operations import Operations
from ..stored.parts import WeightPart, format_of_parts
from . import structs
from .calls import attention as attending
from .calls import experts as mixing
from .calls import latents
from .calls.products import ProductOperations
from .calls.states import StateOperations
from .layer import embedding_of
from .library import Library, struct_of
from .program import Buffer, Program
from .rank_memory import KernelRanks, RankMemory
from .structs import KVMemory, Step
from .weights.experts import of_one_kind, pack_experts
from .weights.lora import NativeLora
from .weights.packed import NativeWeight
from .weights.quantized import pack_parts

_SUM_AREAS = 3


class NativeOperations(ProductOperations, StateOperations):
    """Records into the program that stands in `recording`."""

    def __init__(self, library: Library, ranks: KernelRanks) -> None:
        self.library = library
        self.ranks = ranks
        self.step: Step
        self._plans: dict[tuple[int | None, ...], attending.PlanMemory] = {}
        self._parts: Array | None = None
        self._shared: RankMemory | None = None
        self._num_sums = 0

    @contextmanager
    def recording(self, program: Program, step: Step) -> Iterator[None]:
        self.program, self.step, self._plans = program, step, {}
        self._parts, self._shared, self._num_sums = None, None, 0
        yield
        program.seal()

    # --- weights, while a model loads ---------------------------------------------------------------------------------

    def pack(self, parts: list[WeightPart], format: WeightFormat) -> NativeWeight:
        format = format_of_parts(parts, format)
        return pack_parts(parts, format.kind, format.group_size)

    def pack_experts(self, parts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> NativeWeight:
        return pack_experts(parts, count, format)

    def fitting_experts(self, weights: ExpertWeights, hidden: int) -> ExpertWeights:
        return of_one_kind(weights, hidden)

    def table(self, part: WeightPart, format: WeightFormat) -> NativeWeight:
        return self.pack([part], format)

    def tied_weight(self, table: NativeWeight, format: WeightFormat) -> NativeWeight:
        return table

    def lora(self, in_features: int, outputs: list[int], config: LoraConfig) -> NativeLora:
        return NativeLora(in_features, outputs, config)

    def vector(self, array: Array) -> Array:
        return numpy.array(array, FLOAT32, order="C")

    exact_vector = vector

    # --- what layers call, while a step is recorded -------------------------------------------------------------------

    def embedding(self, token_ids: int, table: NativeWeight, first: int, scale: float = 1.0) -> Buffer:
        """`token_ids` is the step's field, as all that a step's batch gives."""
        found = self.program.buffer(table.in_features)
        arguments = embedding_of(self.program.num_rows, token_ids, first, table, found.data_ptr(), scale)
        self.program.call("penstock_embedding", arguments, found, keep=table)
        return found

    def store_heads(self, heads: Buffer, layout: HeadLayout, rotation: int | None, kv: KVMemory, rows: Step) -> Buffer:
        """`rotation` is the address of a rotary table.

        The query comes back where it was: at the beginning of each token's heads.
        """
        query_norm, key_norm = layout.norms or (None, None)
        arguments = struct_of(
            structs.StoreHeads,
            step=addressof(rows),
            heads=heads,
            num_query_heads=layout.num_queries,
            query_step=layout.head_dim * (1 + layout.is_gated),
            num_projected=layout.num_projected_keys,
            query_norm=query_norm,
            key_norm=key_norm,
            norm_stride=0 if query_norm is None or query_norm.ndim == 1 else layout.head_dim,
            norms_have_mean=layout.norms_have_mean,
            norms_follow=layout.norms_follow,
            norms_values=layout.norms_values,
            epsilon=layout.epsilon,
            rotary=rotation,
            rotation=structs.ROTATION["none" if rotation is None else "pairs" if layout.rotates_pairs else "halves"],
            num_rotated=layout.num_rotated,
            kv=kv,
        )
        self.program.call("penstock_store_heads", arguments, keep=layout.norms)
        return heads

    def attention(self, query: Buffer, layout: HeadLayout, kv: KVMemory, rows: Step, window: int | None) -> Buffer:
        heads = layout.num_keys, layout.num_queries, layout.head_dim * (1 + layout.is_gated)
        scoring = Scoring(layout.scale, window, layout.sinks, layout.softcap)
        return self._attended(query, *heads, kv, rows, scoring)

    def store_latents(self, x: Buffer, layout: LatentLayout, rotation: int, kv: KVMemory, rows: Step) -> None:
        arguments = struct_of(
            structs.StoreLatents,
            step=addressof(rows),
            latents=x,
            norm=layout.norm,
            epsilon=layout.epsilon,
            rank=layout.rank,
            rotary=rotation,
            rotation=latents.rotation_of(layout),
            kv=kv,
        )
        self.program.call("penstock_store_latents", arguments, keep=layout.norm)

    def latent_query(
        self, query: Buffer, weights: Sequence[NativeWeight], layout: LatentLayout, rotation: int
    ) -> Buffer:
        return latents.record_head_products(self.program, self.step, query, weights, layout, rotation)

    def latent_attention(self, query: Buffer, layout: LatentLayout, kv: KVMemory, rows: Step) -> Buffer:
        kv.value_dim = layout.rank
        groups = layout.num_heads // latents.heads_in_a_group(layout.num_heads)
        return self._attended(query, groups, layout.num_heads, layout.width, kv, rows, Scoring(layout.scale))

    def latent_values(self, attended: Buffer, weights: Sequence[NativeWeight], layout: LatentLayout) -> Buffer:
        return latents.record_head_products(self.program, self.step, attended, weights)

    def _attended(
        self,
        query: Buffer,
        num_heads: int,
        num_queries: int,
        query_step: int,
        kv: KVMemory,
        rows: Step,
        scoring: Scoring,
    ) -> Buffer:
        """[T, query heads × value_dim]; `num_heads` are of keys, or groups of queries."""
        attended = self.program.buffer(num_queries * kv.value_dim)
        plan = self._plan_of(rows, num_heads, num_queries, kv.block_size, scoring.window)
        num_floats = attending.num_part_floats(num_queries, kv.value_dim)
        if self._parts is None or len(self._parts) < num_floats:
            self._parts = numpy.empty(num_floats, FLOAT32)
        arguments = struct_of(
            structs.Attention,
            plan=plan.address,
            kv=kv,
            query=query,
            query_stride=query.width,
            query_step=query_step,
            scale=scoring.scale,
            softcap=scoring.softcap or 0.0,
            sinks=scoring.sinks,
            parts=self._parts,
            output=attended,
        )
        self.program.call("penstock_attention", arguments, attended, keep=(self._parts, scoring.sinks))
        return attended

    def _plan_of(
        self, rows: Step, num_heads: int, num_queries: int, block_size: int, window: int | None
    ) -> attending.PlanMemory:
        """Made before the first layer that asks for it, once a step for all that attend alike."""
        key = (addressof(rows), num_heads, num_queries, block_size, window)
        if key not in self._plans:
            capacity = self.program.capacity
            plan = attending.PlanMemory.allocate(
                addressof(rows), capacity, capacity, block_size, num_heads, num_queries, window
            )
            self.program.call("penstock_plan_attention", plan.arguments, keep=plan)
            self._plans[key] = plan
        return self._plans[key]

    def route(
        self,
        logits: Buffer,
        bias: Array | None,
        routing: Routing,
        factors: Array | None = None,
        token_kinds: int | None = None,
        kind: int = 0,
    ) -> mixing.NativeRoutes:
        """`token_kinds` is the address of that field of the step."""
        found = mixing.NativeRoutes(self.program.buffer(routing.top_k), self.program.buffer(routing.top_k))
        given = mixing.routing_fields(routing) | {"experts": found.experts, "weights": found.weights}
        self._record(
            "route",
            structs.Route,
            None,
            (bias, factors),
            logits=logits,
            bias=bias,
            factors=factors,
            kinds=token_kinds,
            own_kind=kind,
            **given,
        )
        return found

    def experts(self, x: Buffer, routes: mixing.NativeRoutes, weights: ExpertWeights) -> Buffer:
        output, kind, top_k = self.program.buffer(x.width), weights.gate_up.family, routes.experts.width
        memory_bytes = mixing.memory_bytes(weights, x.width, top_k, self.program.capacity)
        # Free again when the routes are, which is before another layer's experts.
        memory = self.program.arena.lend(routes.experts, memory_bytes)
        given = self._met_by(x, weights.gate_up)
        self._record(
            f"experts_{kind}",
            structs.Experts,
            output,
            weights,
            **given,
            experts=routes.experts,
            weights=routes.weights,
            top_k=top_k,
            first=weights.first,
            num_experts=weights.num_experts,
            hidden=x.width,
            width=weights.width,
            gate_up=weights.gate_up.structure(),
            down=weights.down.structure(),
            gate_up_bias=weights.gate_up_bias,
            down_bias=weights.down_bias,
            gating=mixing.gating_of(weights.activation),
            memory=memory,
            memory_bytes=memory_bytes,
            output=output,
        )
        return output

    def all_reduce(self, x: Buffer) -> Buffer:
        if self.ranks.size == 1:
            return x
        if self._shared is None:
            self._shared = self.ranks.memory(_SUM_AREAS, 4 * x.width * self.program.capacity)
        # In turn, and the first one in an area of its own, because a step may end with either of the others.
        number = 2 if self._num_sums == 0 else self._num_sums % 2
        self._num_sums += 1
        x.writer.output = address(self._shared.area(number))  # type: ignore[union-attr]
        total, parts = self.program.buffer(x.width), self._shared.parts(number)
        self._shared.record_sum(self.program, number, x.width)
        given = {"meeting": self._shared.meeting, "width": x.width, "parts": addressof(parts), "output": total}
        self._record("all_reduce", structs.AllReduce, None, (self._shared, parts), **given)
        return total

    def all_gather(self, x: Buffer, total: int) -> Buffer:
        """Every rank writes its columns into rank 0's memory."""
        if self.ranks.size == 1:
            return x
        shared = self.ranks.memory(1, 4 * total * self.program.capacity)
        whole = self.program.buffer_in(shared.area(0, rank=0), total)
        first, last = self.ranks.span(total)
        x.writer.output = whole.data_ptr() + 4 * first  # type: ignore[union-attr]
        x.writer.output_stride = total  # type: ignore[union-attr]
        shared.record_gather(self.program, first, last, total)
        return whole


_: type[Operations[Buffer, NativeWeight]] = NativeOperations  # for the type checker
