"""The input and output of `python -m penstock.worker.convert`: one JSON object in, then one a line.

Only a worker may import torch, so the front end has a worker convert.
"""

import msgspec


class Conversion(msgspec.Struct, omit_defaults=True):
    """Which model to convert, and to what."""

    source: str  # folder
    tokenizer: str  # folder
    target: str  # a folder that does not exist yet
    kind: str  # int8 or int4
    group_size: int = 64  # of int4: inputs that share a scale
    tensor_parallel_size: int = 1  # over how many ranks the groups must divide
    is_cut: bool = False  # cut for these ranks: each gets a folder with its share


class ConversionProgress(msgspec.Struct, tag="converting"):
    """How many bytes of the source's weights are done."""

    done: int
    total: int


class ConversionResult(msgspec.Struct, tag="converted"):
    before: int  # bytes of weights; `after` likewise
    after: int


class ConversionRefusal(msgspec.Struct, tag="refused"):
    """Why the model can't be converted."""

    text: str


ConversionMessage = ConversionProgress | ConversionResult | ConversionRefusal
