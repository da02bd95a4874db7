"""GGUF files beside a model's: an encoder gets the numbers of its checkpoint, and LoRA adapters as llama.cpp has them
add what the same adapter adds as PEFT saves it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from builders.adapters import adapter
from builders.backends import load_on
from builders.cases import for_each
from builders.gguf_file import write_gguf
from builders.gguf_models import ARCHITECTURES, permuted
from builders.hand_driven import HandDriven
from builders.seeing_models import ERNIE, FAMILIES, seeing_model
from builders.tiny_model import tiny_model
from safetensors.torch import load_file
from torch import Tensor

from penstock.kernels.torch.arrays import tensor_of
from penstock.protocol.errors import AdapterError
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


# --- LoRA adapters as llama.cpp has them ------------------------------------------------------------------------------


PROMPT = [5, 9, 2, 77, 31, 8]
LORA = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 16.0}


def as_gguf(folder: Path, model: Path, target: Path, **metadata: Any) -> Path:
    """As convert_lora_to_gguf.py writes it: rows of `up` go where those of the weight go."""
    config = json.loads((model / "config.json").read_text())
    architecture = ARCHITECTURES[config["architectures"][0]]
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(known[architecture], config["num_hidden_layers"])
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        module, half = re.fullmatch(r"base_model\.model\.(.*)\.lora_([AB])\.weight", name).groups()
        if architecture == "llama" and half == "B" and module.endswith(("q_proj", "k_proj")):
            heads = config["num_attention_heads" if "q_proj" in module else "num_key_value_heads"]
            tensor = permuted(tensor, heads)
        tensors[f"{table.get_name(module)}.weight.lora_{half.lower()}"] = tensor
    return write_gguf(target, {"general.architecture": architecture, **LORA, **metadata}, tensors)


@for_each("modules", [("q_proj", "k_proj", "down_proj", "up_proj"), None], ids=["some", "all"])
@for_each("family", ["llama", "phi3"])
def test_an_adapter_adds_what_it_adds_as_peft_saves_it(family: str, modules: tuple[str, ...] | None, tmp_path: Path):
    if family == "phi3" and modules is not None:
        modules = ("qkv_proj", "q_proj", "k_proj", "v_proj")
    folder = tiny_model(tmp_path / "model", family)
    saved = adapter(tmp_path / "adapter", folder, lora_alpha=16, **({"modules": modules} if modules else {}))
    model = load_on("fast", folder, max_loras=2, max_lora_rank=16)
    assert model.adapters is not None
    model.adapters.load(0, saved)
    model.adapters.load(1, as_gguf(saved, folder, tmp_path / "lora.gguf"))
    driven = HandDriven(model)
    rows = [driven.add(PROMPT, place) for place in (0, 1, -1)]
    first, second, without = driven.step([(row, len(PROMPT)) for row in rows], every_token=True).chunk(3)
    torch.testing.assert_close(second, first, atol=1e-6, rtol=1e-6)
    assert (first - without).abs().max() > 0.01


def test_what_is_no_plain_adapter_of_this_model_is_refused(tmp_path: Path):
    folder = tiny_model(tmp_path / "model", "llama")
    saved = adapter(tmp_path / "adapter", folder)
    model = load_on("fast", folder, max_loras=1, max_lora_rank=4)
    assert model.adapters is not None

    def refusal(path: Path) -> str:
        with pytest.raises(AdapterError) as error:
            model.adapters.load(0, path)
        assert str(tmp_path) not in str(error.value)
        return str(error.value)

    assert "max_lora_rank=8" in refusal(as_gguf(saved, folder, tmp_path / "wide.gguf"))
    model_file = as_gguf(saved, folder, tmp_path / "model.gguf", **{"general.type": "model"})
    assert "is no adapter: it is a GGUF file" in refusal(model_file)
    tokens = as_gguf(saved, folder, tmp_path / "late.gguf", **{"adapter.alora.invocation_tokens": [1, 2]})
    assert "aLoRA" in refusal(tokens)
    other = adapter(tmp_path / "other", tiny_model(tmp_path / "other model", "llama", hidden_size=64), rank=4)
    assert "another model" in refusal(as_gguf(other, folder, tmp_path / "other.gguf"))
    assert "name its architecture" in refusal(write_gguf(tmp_path / "whose.gguf", LORA, {}))
    half = {"blk.0.attn_q.weight.lora_a": torch.ones(4, 48), "output_norm.weight": torch.ones(48)}
    assert "blk.0.attn_q.weight.lora_a and 1 more" in refusal(
        write_gguf(tmp_path / "half.gguf", {"general.architecture": "llama", **LORA}, half)
    )
    (tmp_path / "none.gguf").write_bytes(b"GGUF")
    assert refusal(tmp_path / "none.gguf").startswith("none.gguf")
    text = as_gguf(saved, folder, tmp_path / "alpha.gguf", **{"adapter.lora.alpha": "16"})
    assert refusal(text) == "alpha.gguf has adapter.lora.alpha='16' where a number belongs. Convert it again."
    few = {"blk.0.attn_q.weight.lora_a": torch.ones(4, 48), "blk.0.attn_q.weight.lora_b": torch.ones(7, 4)}
    flat = {"blk.0.attn_q.weight.lora_a": torch.ones(4), "blk.0.attn_q.weight.lora_b": torch.ones(())}
    for name, tensors in (("few", few), ("flat", flat)):
        path = write_gguf(tmp_path / f"{name}.gguf", {"general.architecture": "llama", **LORA}, tensors)
        assert "another model" in refusal(path)
