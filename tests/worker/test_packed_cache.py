"""Packed weights on disk: what was kept comes back as it was, in memory of the file; doubt means to pack once more.

Of several starts that write one file one writes, and no kept file is lost.
"""

import fcntl
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy
import pytest
from builders.cases import for_each
from builders.native_variants import needs_variant
from builders.tiny_model import tiny_model
from builders.watching import BOUND_SECONDS, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.kernels import WeightFormat
from penstock.kernels.arrays import FLOAT32, Array
from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.kernels.cpu.weights.quantized import OrderedWeight
from penstock.protocol.files.cache_folder import cache_folder
from penstock.protocol.files.own_folder import MARK, own_folder
from penstock.worker.weights.files.checkpoint import Checkpoint
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.packed import kept_files, packed_file, write_through
from penstock.worker.weights.packed.cache import PackedCache
from penstock.worker.weights.packed.kept_files import NoRoom, UnfinishedFile, open_kept, write_kept
from penstock.worker.weights.piece import CheckpointPiece
from penstock.worker.weights.weights import Placement, Weights

pytestmark = needs_variant


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock" / "weights"


def names_in(folder: Path) -> list[str]:
    """Without the folder's own mark."""
    return sorted(path.name for path in folder.iterdir() if path.name != MARK)


@pytest.fixture
def model(tmp_path) -> Path:
    return tiny_model(tmp_path / "model", "qwen3", shards=2)


def weight(number: int, size: int = 1000) -> NativeWeight:
    content = numpy.random.default_rng(number).integers(0, 256, size, numpy.uint8)
    return NativeWeight("int4", number, 7, 64, False, content)


def opened(model: Path, kernels: str = "here", form: str = "int4", rank: int = 0) -> PackedCache:
    return PackedCache.of(model, kernels, WeightFormat(form), rank)


MADE = {str(number): weight(number, 1000 + number) for number in range(3)}


def kept(model: Path, made: Mapping[str, NativeWeight] = MADE) -> PackedCache:
    """A cache whose weights were packed now and written."""
    return written(opened(model), made)


def written(cache: PackedCache, made: Mapping[str, NativeWeight]) -> PackedCache:
    for name, each in made.items():
        cache.add(name, each)
    cache.write_in_background()
    cache.wait()
    return cache


def same(found: NativeWeight | None, made: NativeWeight) -> bool:
    return found is not None and numpy.array_equal(found.data, made.data)


def test_what_was_kept_comes_back_as_it_was_in_the_files_own_memory(model):
    ordered = OrderedWeight("int4", 1, 7, 64, False, MADE["1"].data, numpy.arange(7, dtype=numpy.int32)[::-1])
    first = kept(model, MADE | {"ordered": ordered})
    assert first.weight("0") is None
    second = opened(model)
    mappings = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(first.path) in line]
    spans = [[int(edge, 16) for edge in span.split("-")] for span, *_ in mappings]
    assert {access for _, access, *_ in mappings} == {"r--s"}
    for number, (name, made) in enumerate(MADE.items()):
        found = second.weight(name)
        assert type(found) is NativeWeight and same(found, made)
        assert (found.kind, found.out_features, found.in_features) == ("int4", number, 7)
        assert found.address % 64 == 0
        assert any(start <= found.address < end for start, end in spans)
    assert numpy.array_equal(second.weight("ordered").order, ordered.order)
    assert second.weight("3") is None


def test_what_changes_the_weights_changes_the_file(model, tmp_path):
    path = kept(model).path
    others = [opened(model, kernels="others"), opened(model, form="int8"), opened(model, rank=1)]
    changed = model / "model-00001-of-00002.safetensors"
    before = changed.stat()
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened
    others.append(opened(model))
    assert all(cache.path != path and cache.weight("0") is None for cache in others)


class Packing:
    """Operations that pack a matrix as it is."""

    def pack(self, parts: list[Array], form: WeightFormat) -> NativeWeight:
        return NativeWeight(form.kind, len(parts[0]), 64, 0, False, parts[0].flatten().view(numpy.uint8))

    def table(self, part: Array, form: WeightFormat) -> NativeWeight:
        return self.pack([part], form)


def test_what_was_kept_is_not_read_again_and_counts_as_asked_for(model):
    found, form = [], WeightFormat("fp32")
    for _ in range(2):
        source, cache = Checkpoint(model), opened(model)
        placement = Placement(LayerFormats(form), FLOAT32, Packing(), cache=cache)
        place, table = Weights(source, placement).at("model"), CheckpointPiece("weight", (307, 64), (0, 5, 9))
        made = [place.at("norm").packed([CheckpointPiece("weight", (64,))])]
        made += [place.at("embed_tokens").table(table, each) for each in (form, WeightFormat("bf16"))]
        found.append((source.bytes_read, source.leftovers(), [(each.kind, each.data.tolist()) for each in made]))
        written(cache, {})
    (read, unread, weights), (read_again, *again) = found
    assert (read > 0, read_again) == (True, 0)
    assert again == [unread, weights]


@for_each("place", ["mark", "header's place", "header", "end", "everything", "another file"])
def test_a_file_whose_header_is_damaged_is_noticed_and_made_again(model, place, caplog):
    path = kept(model).path
    content = bytearray(path.read_bytes())
    at = {"mark": 3, "header's place": 50, "header": len(content) - 50}.get(place)
    if at is not None:
        content[at] ^= 4
    if place == "another file":
        content = written(PackedCache(path.with_name("0other")), MADE).path.read_bytes()
    path.write_bytes({"end": content[:-100], "everything": b""}.get(place, content))
    caplog.clear()
    assert opened(model).weight("0") is None
    assert "are made again" in caplog.text
    assert not path.exists()
    kept(model)
    assert opened(model).weight("0") is not None


SIZES = (1, 63, 64, 1000, (1 << 20) - 1, (1 << 20) + 200, 9 << 20)


@given(damaged=st.data())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_weight_of_which_any_byte_is_damaged_is_packed_anew_where_it_lay(model, folder, caplog, damaged):
    number = damaged.draw(st.sampled_from(range(len(SIZES))))
    changes = damaged.draw(st.dictionaries(st.integers(0, SIZES[number] - 1), st.integers(1, 255), min_size=1))
    shutil.rmtree(folder, ignore_errors=True)
    made = {str(each): weight(each, size) for each, size in enumerate(SIZES)}
    first = kept(model, made)
    whole = first.path.read_bytes()
    at = whole.index(made[str(number)].data.tobytes(), 2 << 20)
    with first.path.open("r+b") as file:
        for place, change in changes.items():
            file.seek(at + place)
            file.write(bytes([whole[at + place] ^ change]))
    second = opened(model)
    for name, each in made.items():
        assert (second.weight(name) is None) == (name == str(number)), "only what is damaged is not used"
        if name == str(number):
            assert same(second.add(name, each), each)
    caplog.clear()
    second.complete()
    assert "1 of the packed weights kept" in caplog.text and "packed anew" in caplog.text
    assert first.path.read_bytes() == whole


def test_a_damaged_weight_that_cannot_be_written_where_it_lay_goes_to_a_new_file(model, monkeypatch):
    path = kept(model).path
    before = path.stat().st_ino
    with path.open("r+b") as file:
        file.seek((2 << 20) + 500)
        file.write(b"damaged")
    with monkeypatch.context() as patch:
        patch.setattr(kept_files.os, "O_RDWR", os.O_RDONLY)
        cache = opened(model)
    assert cache.weight("0") is None
    assert cache.weight("1") is not None
    written(cache, {"0": MADE["0"]})
    assert path.stat().st_ino != before
    assert all(same(opened(model).weight(name), made) for name, made in MADE.items())


def test_a_file_of_another_form_is_made_again(model, monkeypatch):
    kept(model)
    monkeypatch.setattr(packed_file, "KINDS", {"NativeWeight": OrderedWeight})
    assert opened(model).weight("0") is None


def test_a_second_tree_that_writes_the_same_leaves_it_to_the_first(model, folder):
    cache = opened(model)
    started, leave = threading.Event(), threading.Event()

    def slowly(file: int) -> None:
        started.set()
        leave.wait(60)
        os.write(file, b"whole")

    first = threading.Thread(target=write_kept, args=(cache.path, 10, slowly))
    first.start()
    started.wait(60)
    assert write_kept(cache.path, 10, lambda file: pytest.fail("both write")) is False
    leave.set()
    first.join()
    assert [(folder / name).read_bytes() for name in names_in(folder)] == [b"whole"]


def test_an_interrupted_write_and_a_full_disk_leave_no_file_and_are_no_error(model, folder, monkeypatch, caplog):
    cache = opened(model)
    cache.add("0", weight(0))
    cache.close()
    cache.write_in_background()
    cache.wait()
    assert names_in(folder) == []

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packed_file.os, "posix_fallocate", full)
    with caplog.at_level("INFO"):
        assert not kept(model).path.exists()
    assert "not kept for the next start: [Errno 28]" in caplog.text


def test_what_an_ended_process_left_unfinished_is_removed(model, folder):
    assert own_folder(cache_folder(), "weights", kept_files.WHAT) == folder
    abandoned, foreign = folder / "abc.writing", folder / "thesis.writing.txt"
    for path in (abandoned, foreign):
        path.write_bytes(b"half")
    kept(model)
    assert (abandoned.exists(), foreign.exists()) == (False, True)


def test_a_folder_that_is_not_ours_is_not_written_to(folder):
    folder.mkdir(parents=True)
    (folder / "abc.writing").write_bytes(b"half")
    with pytest.raises(FileExistsError, match="not Penstock's"):
        write_kept(folder / "0", 300, lambda file: pytest.fail("written"))
    assert names_in(folder) == ["abc.writing"]
    assert not (folder / MARK).exists()


def test_the_folder_stays_within_its_share_of_the_disk(folder, monkeypatch):
    def bounded(free: int) -> None:
        monkeypatch.setattr(kept_files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))

    bounded(4000)
    for number in range(3):
        assert write_kept(folder / str(number), 300, lambda file: os.write(file, bytes(300)))
        os.utime(folder / str(number), (number, number))
    bounded(4000 - 900)
    in_use = open_kept(folder / "0")
    assert (folder / "0").stat().st_mtime > 2, "what was opened last is removed last"
    os.utime(folder / "0", (0, 0))
    assert write_kept(folder / "new", 300, lambda file: os.write(file, bytes(300)))
    assert names_in(folder) == ["0", "2", "new"]
    os.close(in_use)
    with pytest.raises(NoRoom, match="1,100 bytes are more than the 1,000"):
        write_kept(folder / "larger", 1100, lambda file: None)
    assert not (folder / "larger.writing").exists()


def test_a_file_that_another_process_uses_is_not_removed(folder):
    folder.mkdir(parents=True)
    (folder / "used").write_bytes(b"used")
    file = open_kept(folder / "used")
    with open(folder / "used") as other, pytest.raises(OSError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)


# --- written while a model is loaded ----------------------------------------------------------------------------------


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
    wait_until(lambda: is_waited_for(folder / f"{end}.writing"), "a second start that waits")
    getattr(first, end)()
    waiting.join(BOUND_SECONDS)
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
    assert same(second.weight("0"), weight(0))
    second.complete()
    assert same(PackedCache.of(path).weight("0"), weight(0))
    if not is_complete:
        assert [path.name for path in folder.glob("[0-9a-z]*")] == [first.path.name]
        assert os.path.samestat(os.stat(first.path), os.fstat(first._through._file))


def test_a_weight_larger_than_what_is_mapped_at_once_keeps_its_further_tensors(model, monkeypatch):
    monkeypatch.setattr(write_through, "_WINDOW", 4096)
    order = numpy.arange(2000, dtype=numpy.int32)
    ordered = OrderedWeight("int4", 1, 2000, 64, False, weight(1, 9000).data, order)
    cache = PackedCache.of(model)
    cache.write_through(1)
    used = [cache.add(str(number), weight(number, 9000)) for number in range(20)] + [cache.add("ordered", ordered)]
    cache.complete()
    assert all(same(mapped, weight(number, 9000)) for number, mapped in enumerate(used[:-1]))
    assert numpy.array_equal(used[-1].order, order)
    assert numpy.array_equal(PackedCache.of(model).weight("ordered").order, order)
