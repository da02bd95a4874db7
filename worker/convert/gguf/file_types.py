"""Chooses the type of each tensor of a file like llama.cpp's own quantizer.

Norms, biases and routers stay float32. The head, or a table that is also the head, gets more bits than the rest; so do
values and the MLPs' last products in some layers of a Q4_K file (llama.cpp calls this mixture Q4_K_M).
"""

import re
from typing import NamedTuple

from ....protocol.files.gguf.types import BY_NAME, GgmlType


class FileType(NamedTuple):
    number: int  # `general.file_type`
    type_name: str  # type of most tensors

    @property
    def is_quantized(self) -> bool:
        return BY_NAME[self.type_name].block_elements > 1


FILE_TYPES = {
    "q8_0": FileType(7, "Q8_0"),
    "q4_0": FileType(2, "Q4_0"),
    "q4_k": FileType(15, "Q4_K"),
}
# For a model that stays unquantized.
FLOAT_FILE_TYPES = {"float32": FileType(0, "F32"), "float16": FileType(1, "F16"), "bfloat16": FileType(32, "BF16")}

_FLOAT32 = re.compile(r".*(_norm\.weight|ffn_gate_inp(_shexp)?\.weight)")
_LAYER = re.compile(r"blk\.(\d+)\.(.*)")
# Types with blocks of 32, for inputs that are no multiple of 256.
_OF_SMALLER_BLOCKS = {"Q4_K": "Q5_0", "Q5_K": "Q8_0", "Q6_K": "Q8_0"}
_EIGHT_EXPERTS = 8  # Mixtral, for which llama.cpp has special rules
_LAYERS_OF_70B = 80


class TypeChooser(NamedTuple):
    """Chooses by a tensor's name in the file, and its shape."""

    file_type: FileType
    num_layers: int
    num_experts: int
    has_own_head: bool
    shares_keys: bool  # several query heads have one key head

    def type_of(self, name: str, shape: tuple[int, ...]) -> GgmlType:
        if len(shape) == 1 or _FLOAT32.fullmatch(name):
            return BY_NAME["F32"]
        if not self.file_type.is_quantized:
            return BY_NAME[self.file_type.type_name]
        chosen = self._chosen(name, shape[-1])
        for _ in range(2):  # the second time for types with blocks of 32
            if shape[-1] % BY_NAME[chosen].block_elements:
                chosen = _OF_SMALLER_BLOCKS.get(chosen, "F16")
        return BY_NAME[chosen]

    def _chosen(self, name: str, inputs: int) -> str:
        usual = self.file_type.type_name
        if name == ("output.weight" if self.has_own_head else "token_embd.weight"):
            fits = inputs % BY_NAME[usual].block_elements == 0
            return "Q6_K" if fits and usual != "Q8_0" else "Q8_0"
        if (match := _LAYER.fullmatch(name)) is None:
            return usual
        layer, part = int(match[1]), match[2]
        if part in ("attn_v.weight", "attn_qkv.weight"):
            return self._of_values(layer)
        if self.num_experts == _EIGHT_EXPERTS and part == "attn_k.weight":
            return "Q8_0"
        if usual == "Q4_K" and self.num_experts == _EIGHT_EXPERTS and part == "attn_output.weight":
            return "Q5_K"
        if usual == "Q4_K" and part.startswith("ffn_down") and self._has_more_bits(layer):
            return "Q6_K"
        return usual

    def _of_values(self, layer: int) -> str:
        if self.num_experts == _EIGHT_EXPERTS:
            return "Q8_0"
        if self.file_type.type_name != "Q4_K":
            return self.file_type.type_name
        if self._has_more_bits(layer):
            return "Q6_K"
        return "Q5_K" if self.num_layers == _LAYERS_OF_70B and self.shares_keys else "Q4_K"

    def _has_more_bits(self, layer: int) -> bool:
        """Whether the layer is in the first eighth, in the last, or every third between them."""
        first, last = self.num_layers // 8, 7 * self.num_layers // 8
        return layer < first or layer >= last or (layer - first) % 3 == 2
