"""GGUF files whose tensors and metadata are of two models are refused in a sentence that names the file, no folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.backends import load_on
from builders.cases import for_each
from builders.gguf_file import Octets, write_gguf, zeros
from builders.gguf_models import as_gguf
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.header import read_header
from penstock.worker.survey import survey
from penstock.worker.weights.gguf.linked_files import LinkedFiles, linked_files
from penstock.worker.weights.gguf.tensors import GgufTensors


def file_of(folder: Path) -> Path:
    linked = linked_files(folder)
    assert linked is not None
    return linked.files[0]


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The folder's file with other tensors."""
    path = file_of(folder)
    header, content = read_header(path), path.read_bytes()
    tensors: dict[str, Any] = {
        each.name: Octets(each.shape, each.type, content[each.offset : each.offset + each.nbytes])
        for each in header.tensors
    }
    change(tensors)
    write_gguf(path, header.metadata, tensors)


@for_each(
    "family, tensor, shape",
    [
        ("llama", "blk.1.attn_q.weight", (48, 48)),  # fewer rows than its order of heads has
        ("gpt_oss", "blk.0.ffn_gate_exps.bias", (64, 6)),  # two that are made one
        ("qwen3_5_text", "blk.0.ssm_out.weight", (1,)),  # no matrix
        ("llama", "blk.0.ffn_up.weight", ()),
    ],
)
def test_a_tensor_of_another_shape_is_named_with_what_it_was_to_give(
    family: str, tensor: str, shape: tuple[int, ...], tmp_path: Path
):
    folder = as_gguf(tiny_model(tmp_path / "checkpoint", family), tmp_path / "model")
    rewrite(folder, lambda tensors: tensors.update({tensor: zeros(shape)}))
    with pytest.raises(ConfigError) as raised:
        load_on("fast", folder)
    assert tensor in str(raised.value) and file_of(folder).name in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


def test_what_is_wrong_with_a_translated_folder_is_said_of_the_file(tmp_path: Path):
    folder = as_gguf(tiny_model(tmp_path / "checkpoint", "llama"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    change_config(folder, intermediate_size=0)
    refusal = survey([str(folder)], with_torch=False).models[0].refusal
    assert refusal == f"{file_of(folder).name}'s metadata: intermediate_size must be a positive whole number, and is 0."
    change_config(folder, **config | {"num_hidden_layers": 1})
    with pytest.raises(ConfigError) as raised:
        load_on("fast", folder)
    assert str(raised.value).startswith(f"{file_of(folder).name} has tensors of 2 layers")
    assert "config.json" not in str(raised.value) and str(tmp_path) not in str(raised.value)
    change_config(folder, **config)
    rewrite(folder, lambda tensors: tensors.update({"blk.0.of_nobody": zeros((1,))}))
    with pytest.raises(ConfigError, match=f"^{file_of(folder).name} has tensors that no layer of llama reads"):
        load_on("fast", folder)


def test_an_encoder_takes_the_place_of_no_tensor_of_the_model(tmp_path: Path):
    own = write_gguf(tmp_path / "own.gguf", {}, {"output_norm.weight": zeros((4,))})
    other = write_gguf(tmp_path / "mmproj.gguf", {}, {"output_norm.weight": zeros((4,)), "v.x": zeros((1,))})
    with pytest.raises(ConfigError, match=r"^mmproj.gguf has 'output_norm.weight', as own.gguf has"):
        GgufTensors(LinkedFiles((own,), other))
