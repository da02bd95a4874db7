"""A model larger than memory: its packed weights are written while they are packed, mapped, and counted apart from what
must stay in memory; what can't be mapped is refused before anything is read."""

import re
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders.runner_harness import TinyEngine, prompt
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model
from safetensors.torch import save_file

from penstock.kernels.arrays import Array
from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.protocol.errors import ConfigError, OutOfMemoryError
from penstock.protocol.messages import Allocate
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.trace import Trace
from penstock.worker.backends.native import backend as native
from penstock.worker.description.config import read_config
from penstock.worker.start import device_memory
from penstock.worker.start.memory.profile import Size
from penstock.worker.start.start import Start
from penstock.worker.weights.files.checkpoint import Checkpoint
from penstock.worker.weights.packed import kept_files, packed_file

MIB = 1 << 20
WEIGHTS = 29 * MIB  # of the model below
SMALL_MEMORY = WEIGHTS * 2 // 3 + 6 * MIB
WIDENED = {"*": "int8", "*.gate_proj": "int4", "*.up_proj": "int4"}
SMALL = {"speculative_config": False, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    experts = {"hidden_size": 256, "moe_intermediate_size": 144, "num_experts": 15, "num_hidden_layers": 4}
    return tiny_model(tmp_path_factory.mktemp("model"), "qwen3_moe", shards=3, **experts)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "_WORTH_KEEPING", 0)
    return tmp_path / "cache" / "penstock" / "weights"


def kept_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("[0-9a-z]*")]


class Machine:
    """Starts the model where so much memory is free."""

    def __init__(self, model: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = model
        self.directory = directory
        self.monkeypatch = monkeypatch
        self.notes: list[str] = []
        self.mapped = 0
        self.bytes_read = 0

    def start(self, free: int, **options) -> Start:
        self.monkeypatch.setattr(device_memory, "available_memory", lambda: free)
        config = EngineConfig.from_options(self.model, device="cpu", **SMALL, **options)
        return Start(Launch(config, str(self.model), str(self.model), 1), 0, self.directory)

    def tokens(self, free: int, **options) -> list[list[int]]:
        start = self.start(free, **options)
        plan = start.plan()
        self.notes = [note for note in plan.notes if "larger than memory" in note]
        self.mapped = start.model.cache.mapped_bytes
        self.bytes_read = start.model.report.bytes_read
        runner = start.runner(Allocate([plan.num_blocks], plan.max_model_len, [0]), Trace(None, ""))
        answers = TinyEngine(runner).run(prompt(0, [5, 6, 7], max_tokens=20), prompt(1, [9], max_tokens=20))
        start.close()
        return [answer.tokens for answer in answers]


@pytest.fixture
def machine(model, tmp_path, monkeypatch) -> Machine:
    (tmp_path / "tree").mkdir()
    return Machine(model, tmp_path / "tree", monkeypatch)


@pytest.mark.parametrize("quantization", [None, "int8", WIDENED], ids=["floats", "int8", "unlike products"])
def test_a_first_start_writes_and_maps_what_memory_cannot_hold_and_answers_the_same(machine, folder, quantization):
    wanted = machine.tokens(1 << 30, quantization=quantization)
    assert (machine.mapped, machine.notes, kept_in(folder)) == (0, [], [])
    weights = WEIGHTS if quantization is None else WEIGHTS // 4
    free = weights * 2 // 3 + 6 * MIB
    assert machine.tokens(free, quantization=quantization) == wanted
    assert 0.9 * weights < machine.mapped < 1.5 * weights
    assert machine.bytes_read > 0
    assert len(kept_in(folder)) == 1
    [note] = machine.notes
    assert note.startswith("The model is larger than memory: its weights are mapped from the disk")
    assert machine.tokens(free, quantization=quantization) == wanted
    assert (machine.bytes_read > 1 << 16, machine.notes) == (False, [note])
    assert machine.tokens(1 << 30, quantization=quantization) == wanted
    assert machine.notes == []


def test_a_weight_that_was_written_is_in_memory_no_more_when_the_next_one_is(machine, monkeypatch):
    packed: list[weakref.ref[Array]] = []
    in_memory: list[int] = []
    write = packed_file.WeightWriter.add

    def watched(writer: packed_file.WeightWriter, name: str, weight: NativeWeight) -> dict[str, int]:
        packed.append(weakref.ref(weight.data))
        in_memory.append(sum(each() is not None for each in packed))
        return write(writer, name, weight)

    monkeypatch.setattr(packed_file.WeightWriter, "add", watched)
    machine.start(SMALL_MEMORY).close()
    assert len(in_memory) > 20 and set(in_memory) == {1}


CANNOT_BE_MAPPED = r"need 2\d(\.\d+)? MiB in fp32, and 20 MiB are free on .*can't be mapped from the disk: .*"
WAY_OUT = r".*Use quantization='int8', a smaller model, or free memory\. Nothing was read\."


@pytest.mark.parametrize("options, sentence", [
    ({"load_format": "dummy"}, CANNOT_BE_MAPPED + "load_format='dummy'" + WAY_OUT),
    ({}, CANNOT_BE_MAPPED + "of the disk of {folder} they may take 18 MiB" + WAY_OUT),
    # What must stay in memory has to fit even where weights are mapped.
    ({"kv_cache_memory": "14MiB"}, r"Mapped from the disk they would run, but .* need 2\d.* MiB, and 20 MiB"),
], ids=["made up", "disk", "memory"])  # fmt: skip
def test_what_cannot_be_mapped_is_refused_before_it_is_read(machine, folder, monkeypatch, options, sentence):
    monkeypatch.setattr(Checkpoint, "stored", lambda *_: pytest.fail("something was read"))
    if not options:
        monkeypatch.setattr(kept_files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 20 * MIB}))
    with pytest.raises(OutOfMemoryError, match=sentence.replace("{folder}", re.escape(str(folder)))):
        machine.start(20 * MIB, **options)
    assert kept_in(folder) == []


def test_a_load_that_ends_halfway_leaves_no_file(machine, folder, monkeypatch):
    write = packed_file.WeightWriter.add

    def full(writer: packed_file.WeightWriter, name: str, weight: object) -> dict[str, int]:
        if "layers.2" in name:
            raise OSError(28, "No space left on device")
        return write(writer, name, weight)

    monkeypatch.setattr(packed_file.WeightWriter, "add", full)
    with pytest.raises(OutOfMemoryError, match=r"can't be written \(\[Errno 28\].*PENSTOCK_CACHE"):
        machine.start(20 * MIB)
    assert kept_in(folder) == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [({"num_hidden_layers": 3}, "has tensors of 4 layers"), ({"tie_word_embeddings": True}, "that no layer .*: extra")],
    ids=["layers", "a tensor"],
)
def test_a_checkpoint_of_another_model_is_refused_and_nothing_of_it_kept(
    machine, folder, model, tmp_path, given, sentence
):
    machine.model = tmp_path / "model"
    shutil.copytree(model, machine.model)
    change_config(machine.model, **given)
    save_file({"extra": torch.zeros(1)}, machine.model / "extra.safetensors")
    (machine.model / "model.safetensors.index.json").unlink()
    with pytest.raises(ConfigError, match=sentence):
        machine.start(16 * MIB)
    assert kept_in(folder) == []


def test_what_lies_between_the_products_of_experts_and_of_an_mlp_that_all_tokens_share_counts(model):
    mixture, size, options = read_config(model), Size(2, 512), EngineConfig.from_options("m")
    tokens = 2 * 512  # of a step, and of a chunk that passes through the layers next to it
    wide = replace(mixture, experts=replace(mixture.experts, shared_width=mixture.intermediate_size + 1000))
    dense, planned, shared = (
        device_memory._estimated_activations(each, size, 64, options)
        for each in (replace(mixture, experts=None), mixture, wide)
    )
    # The inputs of each token's 4 experts in float32, and what the activation makes of them.
    assert planned - dense > 4 * tokens * 4 * (256 + 144)
    # Of each token gate, up and what is made of them, where they are wider than those of dense layers.
    assert shared - planned == 4 * tokens * 3 * 1000
