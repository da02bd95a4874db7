"""Finds and reads all files of a model that is split into parts: `NAME-00001-of-00003.gguf` and so on.

The first part has the metadata, and each part its own tensors. A model in one file is a model of one part.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import ConfigError
from ...fields.rules import shown
from .header import Header, read_header
from .refusals import file_name
from .tensor_list import TensorInfo

SUFFIX = ".gguf"
MOST_PARTS = 10_000
_NUMBER_KEY, _COUNT_KEY, _TENSORS_KEY = "split.no", "split.count", "split.tensors.count"
_PART = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_FORM = re.compile(r"(-\d{5}-of-\d{5})?\.gguf\Z", re.IGNORECASE)
_NAMES = f"Give the files the names that they were published under, NAME-00001-of-0000N{SUFFIX} and so on."
_ANEW = "Download all parts again, from one source."


class PlacedTensor(NamedTuple):
    """A tensor, and the file of the model that has it."""

    file: Path
    info: TensorInfo


class GgufModel(NamedTuple):
    """The headers of all files of a model, in order."""

    files: tuple[Path, ...]
    headers: tuple[Header, ...]

    @property
    def metadata(self) -> dict[str, Any]:
        return self.headers[0].metadata

    @property
    def tensors(self) -> dict[str, PlacedTensor]:
        return {
            info.name: PlacedTensor(file, info)
            for file, header in zip(self.files, self.headers, strict=True)
            for info in header.tensors
        }


class PartNumber(NamedTuple):
    number: int  # from 1
    total: int


def part_number(name: str) -> PartNumber | None:
    """Which part of a model a file is, judged by its name; None: the model is in one file."""
    found = _PART.fullmatch(name)
    return None if found is None else PartNumber(int(found["number"]), int(found["count"]))


def stem_of(name: str) -> str:
    """The name of a model from the name of any of its parts."""
    return _FORM.sub("", name)


def parts_of(path: Path) -> tuple[Path, ...]:
    """All files of the model that this file belongs to, in order, by their names."""
    if (part := part_number(path.name)) is None:
        return (path,)
    number, count = part
    if not 1 <= number <= count <= MOST_PARTS:
        raise ConfigError(f"{file_name(path)} can't be used: by its name it is part {number} of {count}. {_NAMES}")
    files = tuple(
        path.with_name(f"{stem_of(path.name)}-{each:05}-of-{count:05}{SUFFIX}") for each in range(1, count + 1)
    )
    missing = [each for each in files if not each.is_file()]
    if missing:
        others = "" if len(missing) == 1 else f" (and {len(missing) - 1} more)"
        raise ConfigError(
            f"{file_name(missing[0])}{others} is missing next to {file_name(path)}: all {count} parts of a model are "
            "needed. Download what is missing into the same folder."
        )
    return files


def read_model(files: tuple[Path, ...]) -> GgufModel:
    """Read the headers of all parts of a model, and check that they fit together."""
    headers = tuple(read_header(file) for file in files)
    for number, (file, header) in enumerate(zip(files, headers, strict=True)):
        count = header.metadata.get(_COUNT_KEY, 0)
        if max(count if isinstance(count, int) else 0, 1) != len(files):
            raise ConfigError(
                f"{file_name(file)} can't be used: it says that it is one of {shown(count)} parts, and by its name it "
                f"is one of {len(files)}. {_NAMES}"
            )
        if len(files) > 1 and header.metadata.get(_NUMBER_KEY) != number:
            raise ConfigError(
                f"{file_name(file)} can't be used: it says that it is another part than its name says. {_NAMES}"
            )
    model = GgufModel(files, headers)
    _check_tensors(model)
    return model


def _check_tensors(model: GgufModel) -> None:
    first = file_name(model.files[0])
    num_tensors = sum(len(header.tensors) for header in model.headers)
    if len(model.tensors) != num_tensors:
        raise ConfigError(f"{first} can't be used: a tensor lies in two of its parts. {_ANEW}")
    expected = model.metadata.get(_TENSORS_KEY, num_tensors)
    if len(model.files) > 1 and expected != num_tensors:
        raise ConfigError(
            f"{first} can't be used: its parts have {num_tensors:,} tensors, and it names {shown(expected)}. {_ANEW}"
        )
