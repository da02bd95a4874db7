"""The Python of DashInfer's own pages runs here with another import and another model.

The pages lie in the folder that PENSTOCK_DASHINFER_PAGES names, as Markdown files; what they say is kept nowhere here.
Blocks that show the signature of a method aren't run, all others are one script, as for a reader who types along.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.allspark import AsStatus, Engine, GenerateRequestStatus

PAGES = "PENSTOCK_DASHINFER_PAGES"
# What a reader has written before the first block: the page takes these names as known.
BEFORE = """
from penstock import allspark
from penstock.allspark import *
from penstock.allspark.engine import *
model_local_path, safe_model_name, device_list = "pocket", "pocket", [0]
"""


def blocks_of(page: Path) -> Iterator[str]:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if not block.lstrip().startswith("def "):
            yield re.sub(r"from dashinfer(?=[. ])", "from penstock", block)


def run_page(page: Path, names: dict[str, Any]) -> None:
    for block in blocks_of(page):
        if "queue.Get()" in block and "engine.start_model" not in block:
            start_again(names)
        exec(compile(block, page.name, "exec"), names)


def start_again(names: dict[str, Any]) -> None:
    """The page goes on with a request that it doesn't write out again."""
    engine, name = names["engine"], names["safe_model_name"]
    if engine.model_state(name) != "Running":
        engine.install_model(names["runtime_cfg"])
        assert engine.start_model(name) == AsStatus.ALLSPARK_SUCCESS
    started = engine.start_request_text(name, names["model_loader"], "What is 2 + 3?", names["gen_cfg"])
    names["status"], names["handle"], names["queue"] = started


@pytest.mark.skipif(PAGES not in os.environ, reason=f"{PAGES} names no folder")
def test_the_blocks_of_the_pages_at_hand_run_as_they_stand():
    pages = sorted(Path(os.environ[PAGES]).glob("*dashinfer*.md"))
    assert pages, f"{os.environ[PAGES]} holds no page of DashInfer"
    for page in pages:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(BEFORE, names)
        run_page(page, names)
        assert isinstance(names["engine"], Engine)
        assert names["generated_ids"] and all(isinstance(token, int) for token in names["generated_ids"])
        assert names["queue"].GenerateStatus() is GenerateRequestStatus.GenerateFinished
        assert names["runtime_config"].model_name == "my_model"
        names["engine"].close()
