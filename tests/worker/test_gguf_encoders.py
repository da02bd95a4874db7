"""The encoder of a model that sees, from the GGUF file beside the model's: layers get the numbers of its checkpoint."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import torch
from builders.cases import for_each
from builders.gguf_file import write_gguf
from builders.seeing_models import ERNIE, FAMILIES, seeing_model
from safetensors.torch import load_file
from torch import Tensor

from penstock.kernels.torch.arrays import tensor_of
from penstock.worker.description.config import read_config
from penstock.worker.description.linked_files import LinkedFiles
from penstock.worker.weights.files.checkpoint import Checkpoint
from penstock.worker.weights.gguf.checkpoint import GgufCheckpoint

Tensors = Iterator[tuple[str, Tensor]]
_MERGER = {"merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "merger.norm": "v.post_ln"}
_DEEPSTACK = re.compile(r"visual\.deepstack_merger_list\.(\d+)\.(norm|linear_fc1|linear_fc2)\.(\w+)")


@for_each("family", [family for family in FAMILIES if family != ERNIE])
def test_an_encoders_tensors_are_those_of_its_checkpoint_as_any_converter_wrote_it(family: str, tmp_path: Path):
    folder = tmp_path / "model"
    seeing_model(folder, family)
    config = read_config(folder)
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    text = write_gguf(tmp_path / "text.gguf", {"general.architecture": "qwen3vl"})
    expected = Checkpoint(folder, None, config)
    shapes = {name: expected.stored(name).shape for name in expected.names if name.startswith("visual.")}
    shapes = {name: shape for name, shape in shapes.items() if ".head." not in name}
    assert len(shapes) > 20
    for is_old in (False, True):
        encoder = write_encoder(folder, tmp_path / f"mmproj-{is_old}.gguf", vision, is_old)
        found = GgufCheckpoint(folder, LinkedFiles((text,), encoder), config)
        for name, shape in shapes.items():
            own, right = (tensor_of(each.read(name, shape)) for each in (found, expected))
            torch.testing.assert_close(own, right, msg=f"{name}, {is_old=}")
        assert found.leftovers() == [], is_old


def test_without_sight_an_encoders_file_is_not_opened(tmp_path: Path):
    seeing_model(tmp_path / "model", "Qwen3VL")
    text = write_gguf(tmp_path / "text.gguf", {"general.architecture": "qwen3vl"})
    config = read_config(tmp_path / "model", sees=False)
    assert list(GgufCheckpoint(tmp_path / "model", LinkedFiles((text,), tmp_path / "absent"), config).names) == []


# --- the writer -------------------------------------------------------------------------------------------------------


def write_encoder(checkpoint: Path, target: Path, vision: dict[str, Any], is_old: bool = False) -> Path:
    """Write `mmproj-….gguf` as llama.cpp's converter does, with gguf-py's names.

    `is_old`: with an MLP's ends swapped, and queries, keys and values apart, as earlier converters had them.
    """
    stored: dict[str, Tensor] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        stored |= load_file(path)
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 8)
    found = {}
    for name, tensor in _modified(stored, vision, is_old):
        own = name if name.startswith(("v.", "mm.")) else table.get_name(name, (".weight", ".bias"))
        assert own is not None, name
        if is_old:
            own = re.sub("ffn_(up|down)", lambda part: "ffn_down" if part[1] == "up" else "ffn_up", own)
        found[own] = tensor.float()
    return write_gguf(target, {"general.architecture": "clip"}, found)


def _modified(stored: dict[str, Tensor], vision: dict[str, Any], is_old: bool) -> Tensors:
    for name, tensor in stored.items():
        if (at := name.find("visual.")) >= 0:
            yield from _of_qwen(name[at:], tensor, vision, is_old)
        elif "vision_model" in name or "vision_tower" in name or "connector" in name or "multi_modal" in name:
            yield from _of_siglip(name, tensor)


def _of_qwen(name: str, tensor: Tensor, vision: dict[str, Any], is_old: bool) -> Tensors:
    module, _, kind = name.removeprefix("visual.").rpartition(".")
    if (tapped := _DEEPSTACK.fullmatch(name)) is not None:
        layer = vision["deepstack_visual_indexes"][int(tapped[1])]
        yield f"v.deepstack.{layer}.{tapped[2].replace('linear_', '')}.{tapped[3]}", tensor
    elif module in _MERGER:
        yield f"{_MERGER[module]}.{kind}", tensor
    elif module == "patch_embed.proj" and kind == "weight":
        yield "v.patch_embd.weight", tensor[:, :, 0]
        yield "v.patch_embd.weight.1", tensor[:, :, 1]
    elif ".qkv." in name and is_old:
        for part, own in zip("qkv", tensor.chunk(3), strict=True):
            yield name.replace("qkv", part), own
    else:
        yield name, tensor


def _of_siglip(name: str, tensor: Tensor) -> Tensors:
    name = name.replace("mm_input_projection_weight", "mm_input_projection.weight")
    if "soft_emb_norm" in name:
        tensor = tensor + 1
    if "multi_modal" in name:
        yield name[name.index("multi_modal") :], tensor
    elif "vision_tower" in name:
        yield f"vision_tower.vision_model.{name.partition('vision_tower.')[2].removeprefix('vision_model.')}", tensor
    else:
        yield name, tensor
