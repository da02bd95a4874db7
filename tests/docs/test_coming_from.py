"""What coming-from.md calls Penstock's own name is one."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import msgspec

import penstock
from penstock import (
    LLM,
    BeamSearchParams,
    CompletionOutput,
    GuidedDecodingParams,
    RequestOutput,
    SamplingParams,
)
from penstock.protocol.options.config import EngineConfig

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


def own_names() -> Iterator[str]:
    """The bare names in the first column of the tables whose first column is Penstock's."""
    is_ours = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_ours = False
        elif cells[0] == "Penstock":
            is_ours = True
        elif is_ours and not cells[0].startswith("---"):
            for code in re.findall(r"`([^`]*)`", cells[0]):
                yield from re.findall(r"^\.?(?:outputs(?:\[i\])?\.)?(\w+)", code)


def known_names() -> set[str]:
    structs = (EngineConfig, SamplingParams, BeamSearchParams, GuidedDecodingParams)
    known = {field.name for struct in structs for field in msgspec.structs.fields(struct)}
    known |= {field.name for result in (RequestOutput, CompletionOutput) for field in fields(result)}
    known |= {name for name in dir(LLM) if not name.startswith("_")}
    return known | set(penstock.__all__) | {"int8", "int4", "wint8", "wint4", "dummy"}


def test_every_name_in_its_first_columns_is_known():
    names = list(own_names())
    assert len(names) > 80, "the tables were not found"
    assert set(names) <= known_names(), set(names) - known_names()
