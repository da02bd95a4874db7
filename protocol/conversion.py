"""Input and output of `python -m penstock.worker.convert`: one JSON object in, then one per line out. Also the record
that a conversion leaves in the folder it makes.

Only a worker may import torch, so the front end has a worker convert.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from .errors import ConfigError
from .files.model_file import read_model_json
from .options.option_rules import QUANTIZATION
from .pooling.form import PoolingForm

RECORD = "penstock_conversion.json"
GGUF_KINDS = ("q8_0", "q4_0", "q4_k")  # the type of most tensors of a GGUF file
DEFAULT_GROUP_SIZE = 64  # inputs of int4 that share a scale; also used when quantizing while a model loads


class Conversion(msgspec.Struct, omit_defaults=True):
    """Which model to convert, and to what."""

    source: str  # folder
    tokenizer: str  # folder
    target: str  # a folder, or a GGUF file, that does not exist yet
    # An option value, or a kind of GGUF file; None: the weights stay as they are.
    quantization: str | None
    group_size: int = DEFAULT_GROUP_SIZE  # for int4: inputs that share a scale
    tensor_parallel_size: int = 1  # the number of ranks that the groups must divide over
    is_cut: bool = False  # each rank gets a folder with its share
    is_gguf: bool = False  # the target is one GGUF file
    pooling: PoolingForm | None = None  # of a model that gives numbers: it keeps what is behind its rows
    model: str = ""  # the source's name as the user gave it
    revision: str | None = None


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


class ConversionRecord(msgspec.Struct):
    """How a folder was made. If a load of it doesn't set `quantization`, the same layers are quantized: those stored as
    floats, such as the head, are done then."""

    model: str
    revision: str | None = None
    quantization: str | None = None  # a mapping is an object in the file
    group_size: int | None = None
    tensor_parallel_size: int = 1
    is_cut: bool = False

    def as_json(self) -> dict[str, Any]:
        content = msgspec.to_builtins(self)
        if self.quantization is not None and self.quantization.startswith("{"):
            content["quantization"] = json.loads(self.quantization)
        return {**content, "made_by": "penstock convert"}


def read_record(folder: Path) -> ConversionRecord | None:
    """Read the record; None for a folder that no conversion made."""
    path = folder / RECORD
    try:
        content = read_model_json(path)
    except FileNotFoundError:
        return None
    try:
        record = msgspec.convert(content | {"quantization": None}, ConversionRecord)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{path} is not a conversion record: {error}. Convert the original again.") from error
    if (quantization := content.get("quantization")) is not None:
        record.quantization = QUANTIZATION.checked(f"{path}: quantization", quantization, ConfigError)
    return record
