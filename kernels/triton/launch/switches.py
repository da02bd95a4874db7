"""Switches for the faster paths on a GPU, each an environment variable: 0 takes the plain path, 1 the faster one.

So where an answer is wrong on a GPU, one run for each row of this table finds the path to blame
(`scripts/check_gpu FOLDER switches` makes them). What no GPU has justified yet is off. A worker checks all values when
it starts, so this imports no torch.
"""

import os
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Switch:
    variable: str
    is_on_unasked: bool
    what: str  # is done, where it is on

    @property
    def value(self) -> str:
        return os.environ.get(self.variable, "")

    @property
    def fault(self) -> str:
        """The sentence that says what is wrong with the variable's value; "" if nothing is."""
        if self.value in ("", "0", "1"):
            return ""
        return f"{self.variable}={self.value!r} is neither 0 (off) nor 1 (on): {self.what}."

    @cached_property
    def is_on(self) -> bool:
        """As this process found it when it was first asked."""
        if self.fault:
            raise ValueError(self.fault)
        return self.value == "1" if self.value else self.is_on_unasked


GRAPHS = Switch("PENSTOCK_GRAPHS", True, "steps of answers are captured once and replayed")
PROMPT_GRAPHS = Switch("PENSTOCK_PROMPT_GRAPHS", True, "steps with prompts are captured, too")
FUSED_PRODUCTS = Switch(
    "PENSTOCK_FUSED_PRODUCTS", True, "products of few rows include the norm before them and the operation after them"
)
LIBRARY_ATTENTION = Switch("PENSTOCK_LIBRARY_ATTENTION", True, "a library (FlashAttention) may attend to prompts")
DEQUANTIZED_PRODUCTS = Switch(
    "PENSTOCK_DEQUANTIZED_PRODUCTS",
    True,
    "with a thousand rows or more, 8-bit and 4-bit weights are multiplied as floats by cuBLAS",
)
KERNEL_TUNING = Switch(
    "PENSTOCK_KERNEL_TUNING", True, "the first start measures the fastest block sizes of each kernel"
)
PEER_MEMORY = Switch("PENSTOCK_PEER_MEMORY", False, "several cards sum few rows in one another's memory")
GROUPED_PRODUCTS = Switch(
    "PENSTOCK_GROUPED_PRODUCTS", False, "experts' prompts in bfloat16 are multiplied by torch's grouped products"
)
FLOAT8_PRODUCTS = Switch(
    "PENSTOCK_FLOAT8_PRODUCTS",
    False,
    "a checkpoint's 8-bit floats meet rows in 8-bit floats by torch's scaled products",
)
DEPENDENT_LAUNCHES = Switch(
    "PENSTOCK_DEPENDENT_LAUNCHES", False, "a step's kernels begin, and fetch weights, while those before them end"
)
FAST_RANKS = Switch("PENSTOCK_FAST_RANKS", False, "several cards take the short way of plain steps, too")
FIRST_LOGITS = Switch("PENSTOCK_FIRST_LOGITS", False, "logits of several cards are gathered to the first alone")
STREAM_SUMS = Switch("PENSTOCK_STREAM_SUMS", False, "several cards' sums of few rows include the stream")

SWITCHES = tuple(each for each in globals().values() if isinstance(each, Switch))


def wrong_switch() -> str:
    """Return the sentence about the first variable that is set to something else than 0 or 1; "" if none is."""
    return next(filter(None, (switch.fault for switch in SWITCHES)), "")
