"""Latent attention on the CPU: a token's bits are the same in any company and by any threads, on every variant."""

from dataclasses import replace

import pytest
import torch
from builders.native_variants import available_variants, forced
from builders.operation_examples.latents import KINDS, latent_memory, layouts, query_inputs, value_inputs
from builders.operation_examples.paged_inputs import paged_step
from builders.recorded_layers import RECORDED

from penstock.kernels.cpu.latents import heads_in_a_group
from penstock.kernels.cpu.library import load
from penstock.kernels.registry import OPS

pytestmark = pytest.mark.skipif(not available_variants(), reason="this processor executes none of the native variants")
ATTEND = RECORDED["latent_attention.latent_attention"]


@pytest.fixture(params=[name for name in ("amx", "avx512_bf16", "avx512", "avx2") if name in available_variants()])
def variant(request):
    with forced(request.param):
        yield request.param
        load().set_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_attends_alike_in_one_piece_in_pieces_and_token_by_token(kind, variant):
    for layout, block_size, generator in layouts(seed=3):
        rows, num_blocks = paged_step([(290, 290)], block_size, seed=1)
        kv = latent_memory(num_blocks, block_size, layout.width, kind, generator)
        query = torch.randn(290, layout.num_heads * layout.width, generator=generator)
        whole = ATTEND(query, layout, kv, rows)
        expected = OPS["latent_attention.latent_attention"].reference(query, layout, kv, rows)
        torch.testing.assert_close(whole, expected, rtol=1e-2 if kind == "bf16" else 1e-4, atol=1e-2)
        for threads, cuts in ((1, range(1, 291)), (2, (16, 290)), (3, (37, 74, 255, 256, 257, 290))):
            load().set_threads(threads)
            starts = torch.tensor([0, *cuts], dtype=torch.int32)
            pieces = replace(
                rows,
                query_starts=starts,
                context_lengths=starts[1:].clone(),
                block_tables=rows.block_tables.expand(len(starts) - 1, -1),
            )
            assert torch.equal(ATTEND(query, layout, kv, pieces), whole), f"{threads} threads, {len(cuts)} pieces"


@pytest.mark.parametrize("name, inputs", [("latent_query", query_inputs), ("latent_values", value_inputs)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_meets_its_heads_weights_alike_alone_and_in_company(name, inputs, threads, variant):
    multiply = RECORDED[f"latent_attention.{name}"]
    for x, weights, layout, *rotation in inputs(seed=5):
        load().set_threads(threads)
        together = multiply(x, weights, layout, *rotation)
        for row in (0, 33, 64, 66):
            own = [each._replace(positions=each.positions[row : row + 1]) for each in rotation]
            assert torch.equal(multiply(x[row : row + 1].clone(), weights, layout, *own)[0], together[row])


@pytest.mark.parametrize("num_heads, size", [(1, 1), (6, 6), (16, 16), (17, 17), (20, 10), (128, 16)])
def test_heads_look_at_latents_in_groups_of_one_size(num_heads, size):
    assert heads_in_a_group(num_heads) == size
