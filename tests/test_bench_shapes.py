"""The benchmark of shapes: its shapes, the files it makes of them, and what a token reads."""

import numpy
import pytest
from bench_shapes import CLASSES, KNOWN, bandwidth_lines, own_active_bytes, pythons
from builders.cases import for_each
from peers.random_gguf import BLOCKS, FILES, active_bytes, num_bytes, type_of, values
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


def test_experts_in_mxfp4_are_read_in_as_many_bits_whatever_is_beside_them():
    model = SHAPES["gpt-oss-20b"]
    heads = 201_088 * 2880
    one, two = (own_active_bytes(model, quantization) for quantization in ("mxfp4", "mxfp4_int4"))
    assert two == own_active_bytes(model, "int4")
    attention = 6 * 2880 * 64 * (2 * 64 + 2 * 8)
    assert one - two == (heads + attention) * (8 - 4.25) / 8


def test_a_tied_embedding_is_read_as_the_head():
    assert next(tensor.share for tensor in tensors(SHAPES["ernie-21b"])) == 1
    assert next(tensor.share for tensor in tensors(SHAPES["olmoe"])) == 0


@for_each("layers", [3, 6])
def test_fewer_layers_are_fewer_matrices_and_more_are_more_in_both_kinds_of_attention(tmp_path, layers):
    model = SHAPES["gpt-oss-20b"].cut(layers)
    write_config(tmp_path, model)
    assert read_config(tmp_path).windows == (128, None) * (layers // 2) + (128,) * (layers % 2)
    assert {tensor.layer for tensor in tensors(model)} == set(range(layers))


def test_weights_by_chance_lie_around_zero():
    """Else every token's activations would point one way, and all tokens would choose the same experts."""
    tensor = next(one for one in tensors(SHAPES["qwen3-30b"]) if "ffn_gate_exps" in one.name)
    small = type(tensor)(tensor.name, (4, 64, 2048), tensor.part)
    blocks = values(small, "Q4_0", numpy.random.Generator(numpy.random.SFC64(0)))
    assert blocks.nbytes == num_bytes(small, "Q4_0")
    scales = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
    nibbles = numpy.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1).astype(numpy.float32)
    weights = scales * (nibbles - 8)
    assert weights.std() == pytest.approx(0.02, rel=0.05)
    assert abs(weights.mean()) < 1e-4
    assert abs(weights.mean(axis=0)).max() < 1e-3, "nor does any input"


def test_experts_are_as_published_in_the_class_of_mxfp4_only(tmp_path):
    """Integers are made of the original in floats, for what is published in MXFP4 stays so."""
    model = SHAPES["gpt-oss-20b"].cut(2)
    for quantization in CLASSES:
        write_config(tmp_path, model.in_class(quantization))
        read = read_config(tmp_path).quantization
        assert (read is not None and read.is_mxfp4) == (quantization in BESIDE_MXFP4)
    assert [name for name, each in SHAPES.items() if each.is_mxfp4] == ["gpt-oss-20b"]


def test_rows_of_one_engine_have_one_python():
    assert pythons([("llama.cpp", "/a")]) == {name: "/a" for name in KNOWN if name.startswith("llama.cpp")}


def test_the_share_of_the_bandwidth_is_that_of_the_bytes_a_step_reads():
    model = SHAPES["olmoe"]
    seconds = own_active_bytes(model, "int8") / 40e9
    sitting = {
        "engines": {"penstock": {}, "openvino": {}},
        "scenarios": {"decode": {"penstock": {"step_seconds": [2 * seconds], "read_gb_s": [40.0]}}},
    }
    assert list(bandwidth_lines(model, "int8", sitting)) == [
        f"| MB of weights read a token | {own_active_bytes(model, 'int8') / 1e6:.0f} | – | |",
        "| share of the bandwidth, batch 1 | 50% | – | |",
    ]
