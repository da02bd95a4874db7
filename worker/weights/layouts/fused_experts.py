"""Shows experts that share one tensor as a tensor for each expert, as in most checkpoints.

  experts.gate_up_proj [experts, gate | up, in], experts.down_proj [experts, out, in]: as transformers holds them
  …_scale_inv, …_scale: of 8-bit floats, by expert what would lie beside its own weight
  both transposed, gate | up side by side [experts, in, gate | up]: as Qwen3-VL's are published; their shapes show it
  mlp.gate, mlp.shared_experts, …e_score_correction_bias: in memory all families' routers and the like have these names

For families whose experts have separate names; `mixtures.Stack` describes families that always fuse them.
"""

import re
from collections.abc import Iterable, Iterator

from ....kernels.arrays import Array
from ....protocol.errors import ConfigError
from ...description.parts.mixtures import ExpertsConfig
from .layout import Layout, Sliceable

# By the suffix of a fused tensor's name: the tensor of an expert's projection.
_TENSORS = {
    "": "weight",
    "_scale_inv": "weight_scale_inv",
    "_scale": "weight_scale",
    "_activation_scale": "activation_scale",
}
_FUSED = re.compile(r"(.*\.experts\.)(gate_up_proj|down_proj)(|_scale_inv|_scale|_activation_scale)")

_IN_MEMORY = re.compile(
    r"(.*\blayers\.\d+\.)mlp\.(?:(?P<router>gate\.weight)|(?P<bias>(?:.*\.)?e_score_correction_bias)"
    r"|shared_experts\.(?P<shared>.*)|experts\.(?P<experts>.*))"
)


class FusedExperts:
    """A layout with separate experts; `others` shows all other tensors."""

    def __init__(self, experts: ExpertsConfig, hidden_size: int, block_rows: int, others: Layout) -> None:
        """`block_rows`: rows of a matrix that share a scale; 0: derived from the scales' shape."""
        self._experts, self._block_rows, self._others = experts, block_rows, others
        gate, up, down = experts.names.gate_up_down
        self._parts: dict[str, dict[str, int | None]] = {"gate_up_proj": {gate: 0, up: 1}, "down_proj": {down: None}}
        # Untransposed shapes of gate and up together, and of down.
        both = [2 * experts.width, hidden_size]
        self._matrices = {0: both, 1: both, None: [hidden_size, experts.width]}
        self._transposed: set[str] = set()  # those of the layers' tensors examined so far
        self._shown: dict[str, tuple[str, int, int | None]] = {}

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return dict(self._named(stored))

    def view(self, name: str, stored: Array) -> Sliceable:
        if name not in self._shown:
            return self._others.view(name, stored)
        fused, expert, half = self._shown[name]
        own = stored[expert, ...]  # an array even if it is a single number
        if self._is_transposed(fused, list(own.shape), half):
            own = own.T
        if half is None or own.ndim < 2:
            return own
        if len(own) % 2 or self._has_block_across(len(own)):
            raise ConfigError(
                f"{fused} has {len(own)} rows of scales for the two projections of each expert, so a block lies "
                "across both. Use a checkpoint whose experts have tensors of their own, or its original."
            )
        num_rows = len(own) // 2
        return own[half * num_rows : (half + 1) * num_rows]

    def _has_block_across(self, num_rows: int) -> bool:
        """Whether so many rows of scales may belong to both projections, with the second beginning within a block."""
        block, width = self._block_rows, self._experts.width
        return block > 0 and width % block > 0 and num_rows == -(-2 * width // block)

    def _is_transposed(self, fused: str, shape: list[int], half: int | None) -> bool:
        """Decide by the shape; a square matrix counts as untransposed, as in transformers. Scales, which are read after
        their matrix, follow it."""
        if not self._experts.names.has_transposed or len(shape) != 2:
            return False
        usual = self._matrices[half]
        if shape == usual[::-1] != usual:
            self._transposed.add(fused)
        return fused[: fused.rindex("_proj") + len("_proj")] in self._transposed

    def _named(self, stored: Iterable[str]) -> Iterator[tuple[str, str]]:
        for name, own in self._others.names(stored).items():
            name = self._published(name)
            if not (fused := _FUSED.fullmatch(name)):
                yield name, own
                continue
            experts, product, tensor = fused.groups()
            for part, half in self._parts[product].items():
                for expert in range(self._experts.num_experts):
                    shown = f"{experts}{expert}.{part}.{_TENSORS[tensor]}"
                    self._shown[shown] = own, expert, half
                    yield shown, own

    def _published(self, name: str) -> str:
        """The published name of a tensor that transformers saved under its in-memory name."""
        if not (found := _IN_MEMORY.fullmatch(name)):
            return name
        names = self._experts.names
        within = names.within(found[1].rstrip("."))
        if found["router"]:
            return f"{within}.{names.router}.weight"
        if found["bias"]:
            return f"{within}.{names.choice_bias}" if names.choice_bias else name
        if found["shared"]:
            return f"{within}.{names.shared}.{found['shared']}"
        return f"{within}.{names.experts}.{found['experts']}"


def is_fused(names: Iterable[str]) -> bool:
    return any(map(_FUSED.fullmatch, names))


def refuse_scales_of_stacks(names: Iterable[str]) -> None:
    """Refuse 8-bit floats for a family that always fuses its experts, which are read as floats or MXFP4."""
    found = next((name for name in names if (fused := _FUSED.fullmatch(name)) and fused[3]), None)
    if found is not None:
        raise ConfigError(
            f"{found} belongs to experts in 8-bit floats, which this family is not read with: its experts are read in "
            "float32, float16, bfloat16 and MXFP4. Use such a checkpoint."
        )
