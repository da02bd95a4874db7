"""The operations of a gated delta net, and of gates of heads, as native calls of the program that is being recorded.

A part of `../operations.py`.
"""

import math
from ctypes import addressof

import numpy

from ...arrays import FLOAT32, Array
from ...elementary import exponential
from ...operands import HeadLayout
from ...states import DeltaHeads, LayerStates, StateActivation
from ..library import struct_of
from ..program import Buffer, Program
from ..structs import CausalConvolution, DeltaNet, GatedNorm, GateHeads, Step

WIDEST_CONVOLUTION = 16  # kMostWidth


class StateOperations:
    """What a layer that keeps states computes between its products; the group's step has its segments."""

    program: Program  # that is being recorded

    def causal_convolution(
        self,
        x: Buffer,
        weight: Array,
        bias: Array | None,
        activation: StateActivation,
        states: LayerStates,
        segments: Step,
    ) -> Buffer:
        if weight.shape[1] > WIDEST_CONVOLUTION:
            raise ValueError(f"A convolution of {weight.shape[1]} tokens is wider than {WIDEST_CONVOLUTION}.")
        output, by_tap = self.program.buffer(x.width), numpy.ascontiguousarray(weight.T)
        arguments = struct_of(
            CausalConvolution,
            step=addressof(segments),
            input=x,
            channels=x.width,
            width=len(by_tap),
            weight=by_tap,
            bias=bias,
            has_silu=activation == "silu",
            states=states.convolved,
            state_stride=math.prod(states.convolved.shape[1:]),
            output=output,
        )
        self.program.call("penstock_causal_convolution", arguments, output, keep=(by_tap, bias, states))
        return output

    def delta_net(
        self, convolved: Buffer, b: Buffer, a: Buffer, heads: DeltaHeads, states: LayerStates, segments: Step
    ) -> Buffer:
        output = self.program.buffer(heads.num_value_heads * heads.value_dim)
        decay = numpy.array([exponential(each) for each in heads.log_decay.tolist()], FLOAT32)
        arguments = struct_of(
            DeltaNet,
            step=addressof(segments),
            convolved=convolved,
            b=b,
            a=a,
            decay=decay,
            step_bias=heads.step_bias,
            num_key_heads=heads.num_key_heads,
            num_value_heads=heads.num_value_heads,
            key_dim=heads.key_dim,
            value_dim=heads.value_dim,
            states=states.recurrent,
            state_stride=math.prod(states.recurrent.shape[1:]),
            output=output,
        )
        self.program.call("penstock_delta_net", arguments, output, keep=(decay, heads, states))
        return output

    def gated_norm(self, x: Buffer, gate: Buffer, weight: Array, epsilon: float, num_heads: int) -> Buffer:
        output = self.program.buffer(x.width)
        arguments = struct_of(
            GatedNorm,
            num_rows=self.program.num_rows,
            x=x,
            gate=gate,
            weight=weight,
            epsilon=epsilon,
            num_heads=num_heads,
            size=x.width // num_heads,
            output=output,
        )
        self.program.call("penstock_gated_norm", arguments, output, keep=weight)
        return output

    def gate_heads(self, attended: Buffer, heads: Buffer, layout: HeadLayout) -> Buffer:
        output = self.program.buffer(attended.width)
        arguments = struct_of(
            GateHeads,
            num_rows=self.program.num_rows,
            attended=attended,
            gates=heads.data_ptr() + 4 * layout.head_dim,  # behind the first query
            row_step=heads.width,
            gate_step=2 * layout.head_dim,
            num_heads=layout.num_queries,
            size=layout.head_dim,
            output=output,
        )
        self.program.call("penstock_gate_heads", arguments, output)
        return output
