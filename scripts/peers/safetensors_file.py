"""Reads a safetensors file with nothing but numpy: bfloat16 comes as its 16 bits, mapped and not copied.

For engines whose Python has no torch.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy


def bfloat16_tensors(path: Path) -> Iterator[tuple[str, numpy.ndarray]]:
    """Each tensor's name and its bits as uint16, in the file's order."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_bytes))
    header.pop("__metadata__", None)
    mapped = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + header_bytes)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["dtype"] != "BF16":
            raise ValueError(f"{path}: {name} is {entry['dtype']}; the benchmark's checkpoints are BF16 throughout.")
        start, end = entry["data_offsets"]
        yield name, mapped[start:end].view(numpy.uint16).reshape(entry["shape"])


def as_float32(bits: numpy.ndarray) -> numpy.ndarray:
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
