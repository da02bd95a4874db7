"""The benchmark of shapes: its shapes, the files it makes of them, and what a token reads."""

import pytest
from bench_shapes import CLASSES, own_active_bytes
from builders.cases import for_each
from peers.random_gguf import BLOCKS, FILES, active_bytes, type_of
from peers.shape import BESIDE_MXFP4, CONVOLUTION, DECAY, EMBEDDING, tensors, write_config
from peers.shapes import SHAPES

from penstock.worker.models.config import read_config
from penstock.worker.models.products import products


def is_product(tensor) -> bool:
    is_router = "ffn_gate_inp" in tensor.name
    is_left_out = is_router or tensor.name.endswith(".bias") or tensor.part in (EMBEDDING, CONVOLUTION, DECAY)
    return len(tensor.shape) > 1 and not is_left_out


@for_each("name", SHAPES)
def test_the_matrices_of_a_shape_are_those_that_its_model_multiplies(name, tmp_path):
    model = SHAPES[name].cut(8)  # layers, of every kind
    write_config(tmp_path, model)
    multiplied = sum(product.num_weights for product in products(read_config(tmp_path)))
    assert sum(tensor.weights for tensor in tensors(model) if is_product(tensor)) == multiplied


@for_each("name", SHAPES)
@for_each("file", FILES)
def test_every_matrix_fills_the_blocks_of_its_type(name, file):
    for tensor in tensors(SHAPES[name]):
        kind = type_of(SHAPES[name], tensor, file)
        assert kind is None or tensor.shape[-1] % BLOCKS[kind].weights == 0, tensor


def test_a_token_reads_the_chosen_experts_and_a_row_of_the_embedding():
    model = SHAPES["qwen3-30b"]
    attention, experts, head = 2048 * 128 * (2 * 32 + 2 * 4), 8 * 3 * 768 * 2048, 151_936 * 2048
    weights = 8 * (attention + experts) + head
    floats = 4 * (8 * (128 * 2048 + 2 * 2048 + 2 * 128) + 2048)
    assert own_active_bytes(model, "int8") == weights + floats
    assert active_bytes(model, "Q8_0") == pytest.approx(weights * 34 / 32 + floats)


def test_experts_are_as_published_in_the_class_of_mxfp4_only(tmp_path):
    """Integers are made of the original in floats, for what is published in MXFP4 stays so."""
    model = SHAPES["gpt-oss-20b"].cut(2)
    for quantization in CLASSES:
        write_config(tmp_path, model.in_class(quantization))
        read = read_config(tmp_path).quantization
        assert (read is not None and read.is_mxfp4) == (quantization in BESIDE_MXFP4)
    assert [name for name, each in SHAPES.items() if each.is_mxfp4] == ["gpt-oss-20b"]
