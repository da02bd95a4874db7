"""Packed weights that are written while a model is loaded: of several starts one writes, and no kept file is lost."""

import os
import threading
from pathlib import Path

import numpy
import pytest
from builders.cases import for_each
from builders.tiny_model import tiny_model
from builders.watching import wait_until

from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.kernels.cpu.weights.quantized import OrderedWeight
from penstock.worker.weights.packed import write_through
from penstock.worker.weights.packed.cache import PackedCache
from penstock.worker.weights.packed.kept_files import UnfinishedFile

PATIENCE = 60  # seconds


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock" / "weights"


@pytest.fixture
def model(tmp_path) -> Path:
    return tiny_model(tmp_path / "model", "qwen3")


def weight(number: int) -> NativeWeight:
    content = numpy.random.default_rng(number).integers(0, 256, 9000, numpy.uint8)
    return NativeWeight("int4", number, 7, 64, False, content)


def is_waited_for(file: Path) -> bool:
    """Whether somebody waits for a lock of the file."""
    inode = f":{file.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


@for_each("end", ["complete", "forget"])
def test_a_start_that_waits_for_another_goes_on_when_that_has_written_and_still_runs(folder, end):
    first = UnfinishedFile.begin(folder / end, 10, waits=True)
    second: list[UnfinishedFile | None] = []
    waiting = threading.Thread(
        target=lambda: second.append(UnfinishedFile.begin(folder / end, 10, waits=True)), daemon=True
    )
    waiting.start()
    wait_until(lambda: is_waited_for(folder / f"{end}.writing"), PATIENCE, "a second start that waits")
    getattr(first, end)()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert [one is None for one in second] == [end == "complete"]


@for_each("is_complete", [False, True])
def test_a_start_that_comes_to_write_uses_the_file_that_another_has_written(tmp_path, folder, is_complete):
    """Since, or before: as a rank's, if its first start was killed while another rank's weights weren't complete."""
    path = tiny_model(tmp_path / str(is_complete), "qwen3", seed=int(is_complete))
    first, second = PackedCache.of(path), PackedCache.of(path)
    first.write_through(20_000)
    first.add("0", weight(0))
    first.complete()
    second = PackedCache.of(path) if is_complete else second
    second.write_through(20_000)
    assert numpy.array_equal(second.weight("0").data, weight(0).data)
    second.complete()
    assert numpy.array_equal(PackedCache.of(path).weight("0").data, weight(0).data)
    if not is_complete:
        assert [path.name for path in folder.glob("[0-9a-z]*")] == [first.path.name]
        assert os.path.samestat(os.stat(first.path), os.fstat(first._through._file))


def test_a_weight_larger_than_what_is_mapped_at_once_keeps_its_further_tensors(model, monkeypatch):
    monkeypatch.setattr(write_through, "_WINDOW", 4096)
    order = numpy.arange(2000, dtype=numpy.int32)
    ordered = OrderedWeight("int4", 1, 2000, 64, False, weight(1).data, order)
    cache = PackedCache.of(model)
    cache.write_through(1)
    used = [cache.add(str(number), weight(number)) for number in range(20)] + [cache.add("ordered", ordered)]
    cache.complete()
    assert all(numpy.array_equal(mapped.data, weight(number).data) for number, mapped in enumerate(used[:-1]))
    assert numpy.array_equal(used[-1].order, order)
    assert numpy.array_equal(PackedCache.of(model).weight("ordered").order, order)
