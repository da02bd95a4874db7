"""Attention on the CPU against its formula, in every format and of latents; the same bits in whatever company."""

from dataclasses import replace
from itertools import product

import numpy
import torch
from builders.cases import for_each
from builders.native_attention import Machine, Row, Shape, assert_near, handed_out, heads_of, pieces_of
from builders.native_products import empty_rows
from builders.native_variants import needs_variant
from builders.operation_examples.attention import paged_step
from builders.operation_examples.latents import (
    IN_BYTES,
    KINDS,
    latent_memory,
    layouts,
    plain_latents,
    query_inputs,
    stored_with_large_keys,
    value_inputs,
)
from builders.recorded_layers import RECORDED
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu.calls.latents import heads_in_a_group
from penstock.kernels.cpu.kv_memory import KV_FORMATS
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.registry import OPS
from penstock.kernels.torch.arrays import tensor_of
from penstock.worker.kv.kv_cache import KVShape, NativeKVCache

pytestmark = needs_variant

LATENTS = "latent_attention.latent_attention"
# Allowed errors as shares of the output's norm, against the formula on the stored numbers: queries and the weights of
# keys are rounded in between.
# AMX multiplies float16 as pairs of bfloat16, whose second half keeps a query to 2**-17.
TOLERANCES = {"fp32": 1e-5, "fp16": 2e-5, "bf16": 8e-3, "int8": 1.5e-2, "uint4": 1.5e-2}
# Allowed errors of a stored number that is read back, as shares of its head's range.
STEPS = {"fp32": 0.0, "fp16": 2**-11, "bf16": 2**-8, "int8": 0.6 / 127, "uint4": 0.6 / 15}

shapes = st.builds(
    lambda kind, shared, heads, *rest: Shape(kind, shared * heads, heads, *rest),
    st.sampled_from(list(KV_FORMATS)),
    st.sampled_from([1, 2, 3, 7]),
    st.integers(1, 3),
    st.sampled_from([16, 32, 48, 64, 80, 128, 256, 512]),
    st.sampled_from([16, 32, 64, 128]),
    st.sampled_from([None, None, 1, 17, 100, 300]),
    st.booleans(),
    st.sampled_from([None, None, 50.0, 1.5]),
    st.booleans(),
)
# (tokens already stored, tokens of the step)
row_sizes = st.lists(st.tuples(st.integers(0, 600), st.integers(1, 70)), min_size=1, max_size=5)
quick = settings(max_examples=12)


def with_wide_heads_and_capped_scores(test):
    """In every format, with one query and with many."""
    for kind, (head_dim, softcap) in product(KV_FORMATS, ((512, None), (256, 2.0))):
        shape = Shape(kind, query_heads=8, heads=1, head_dim=head_dim, block_size=32, softcap=softcap)
        test = example(shape=shape, sizes=[(0, 289), (289, 1)], threads=1)(test)
    return test


@quick
@with_wide_heads_and_capped_scores
@given(shape=shapes, sizes=row_sizes, threads=st.integers(1, 3))
def test_attention_agrees_with_its_formula_whatever_the_format_the_company_and_the_threads(
    library: Library, shape: Shape, sizes, threads: int
) -> None:
    tables, num_blocks = handed_out([before + now for before, now in sizes], shape.block_size)
    requests = [heads_of(shape, before + now, seed) for seed, (before, now) in enumerate(sizes)]
    together, alone = (Machine(library, shape, num_blocks, max_parts) for max_parts in (64, 500))
    for machine in (together, alone):
        for table, request, (before, _) in zip(tables, requests, sizes, strict=True):
            if before:
                machine.step([Row(table, 0, request[:before])])
    rows = [Row(t, before, r[before:]) for t, r, (before, _) in zip(tables, requests, sizes, strict=True)]
    library.set_threads(threads)
    found = together.step(rows)
    library.set_threads(1)
    assert_near(found, torch.cat([together.expected(row) for row in rows]), TOLERANCES[shape.kind])
    assert torch.equal(found, torch.cat([alone.step([row]) for row in rows])), "a row has other bits in company"


@quick
@given(
    shape=shapes,
    length=st.integers(2, 700),
    cuts=st.lists(st.integers(1, 700), max_size=6) | st.just(list(range(300))),
    block_size=st.sampled_from([16, 32, 64, 128]),
)
def test_a_prompt_has_the_same_bits_in_any_pieces_and_blocks(library, shape: Shape, length, cuts, block_size) -> None:
    heads = heads_of(shape, length, 1)
    tables, num_blocks = handed_out([length], shape.block_size)
    whole = Machine(library, shape, num_blocks).step([Row(tables[0], 0, heads)])
    tables, num_blocks = handed_out([length], block_size)
    machine = Machine(library, replace(shape, block_size=block_size), num_blocks)
    found = torch.cat([machine.step([piece]) for piece in pieces_of(heads, tables[0], cuts)])
    assert torch.equal(found, whole)


@quick
@given(
    shape=shapes,
    own=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)), min_size=2, max_size=5),
    prefix=st.sampled_from([255, 256, 512, 640, 770]),
)
def test_rows_that_share_a_prefix_have_the_bits_of_rows_with_copies_of_it(library, shape: Shape, own, prefix) -> None:
    size = shape.block_size
    common = heads_of(shape, prefix, 99)
    requests = [torch.cat((common, heads_of(shape, before + now, seed))) for seed, (before, now) in enumerate(own)]
    tables, num_blocks = handed_out([len(request) for request in requests], size)
    shared_tables = [tables[0][: prefix // size] + table[prefix // size :] for table in tables]
    found = []
    for chosen, max_parts in ((shared_tables, 200), (tables, 0)):
        machine = Machine(library, shape, num_blocks, max_parts)
        rows = [Row(table, 0, request) for table, request in zip(chosen, requests, strict=True)]
        for row, (_, now) in zip(rows, own, strict=True):
            machine.step([Row(row.table, 0, row.heads[:-now])])
        found.append(
            machine.step([Row(r.table, r.end - now, r.heads[-now:]) for r, (_, now) in zip(rows, own, strict=True)])
        )
    assert torch.equal(found[0], found[1])


# Without a window, and with one.
LONG = ((None, None), (1500, 20.0))


@for_each("kind, window, softcap", [(kind, *LONG[number % 2]) for number, kind in enumerate(KV_FORMATS)])
def test_a_long_context_has_the_same_bits_in_any_pieces_and_company(
    library: Library, kind: str, window: int | None, softcap: float | None
) -> None:
    shape = Shape(kind, query_heads=2, heads=1, head_dim=16, block_size=32, window=window, softcap=softcap)
    common, length = 5280, 5330
    prefix = heads_of(shape, common, 7)
    requests = [torch.cat((prefix, heads_of(shape, length - common, seed))) for seed in (8, 9)]
    tables, num_blocks = handed_out([length, length], shape.block_size)
    alone, together = (Machine(library, shape, num_blocks, max_parts) for max_parts in (0, 4000))
    cuts = range(500, length, 500)
    expected = []
    for table, request in zip(tables, requests, strict=True):
        expected.append([alone.step([piece]) for piece in pieces_of(request, table, [*cuts, common])][-1])
        assert_near(expected[-1], alone.expected(Row(table, common, request[common:])), TOLERANCES[kind])
    tables[1][: common // shape.block_size] = tables[0][: common // shape.block_size]
    for piece in pieces_of(prefix, tables[0], [3, 4095, 4100, 5119]):
        together.step([piece])
    for threads, cuts in ((1, (common,)), (2, range(common, length, 7)), (3, range(common, length))):
        library.set_threads(threads)
        rows = zip(*(pieces_of(r, t, list(cuts))[1:] for r, t in zip(requests, tables, strict=True)), strict=True)
        found = [together.step(list(pieces)).chunk(2) for pieces in rows]
        for row in range(2):
            assert torch.equal(torch.cat([each[row] for each in found]), expected[row]), f"{threads} threads"
    library.set_threads(1)


def test_rows_with_a_common_prefix_look_at_it_in_one_tile(library: Library) -> None:
    shape = Shape(block_size=32)
    heads = heads_of(shape, 600, 0)
    tables, num_blocks = handed_out([600, 600], shape.block_size)
    tables[1] = tables[0][:16] + tables[1][16:]
    machine = Machine(library, shape, num_blocks)
    for table in tables:
        machine.step([Row(table, 0, heads)])
    machine.step([Row(table, 599, heads[599:]) for table in tables])
    num_tiles, num_parted = machine.plan.memory[:2].tolist()
    tiles = machine.plan.memory[2 : 2 + num_tiles * 6].reshape(num_tiles, 6)
    shared = sum((end - first) for _, tokens, _, first, end, _ in tiles.tolist() if tokens == 2)
    assert shared == 2 and num_parted == 2, f"tiles: {tiles.tolist()}"


@for_each("kind", KV_FORMATS)
def test_stored_heads_are_the_nearest_numbers_of_their_format(library: Library, kind: str) -> None:
    """Norms and rotations: test_cpu_versions.py."""
    heads, ([table], num_blocks) = heads_of(shape := Shape(kind, 6, 3, head_dim=48), 150, 3), handed_out([150], 16)
    machine = Machine(library, shape, num_blocks)
    machine.step([Row(table, 0, heads)])
    for stored, before in zip(machine.kv.stored(0, numpy.array(table)), heads.split(3, 1)[2:], strict=True):
        written = tensor_of(stored).transpose(1, 2).flatten(0, 1)[:150]
        error = (written - before).abs() / (before.amax(-1, keepdim=True) - before.amin(-1, keepdim=True))
        assert error.max() <= STEPS[kind] + 1e-6, f"off by {error.max():.2e} of a head's range"


@for_each("kind", KV_FORMATS)
@for_each("head", [0, 4, 6], ids=["query", "key", "value"])
def test_what_is_not_finite_in_one_request_reaches_its_output_and_no_other(library, kind: str, head: int) -> None:
    shape = Shape(kind, head_dim=64)
    tables, num_blocks = handed_out([40, 40], shape.block_size)
    rows = [Row(table, 0, heads_of(shape, 40, seed)) for seed, table in enumerate(tables)]
    rows[0].heads[7, head, 5] = torch.nan
    found = Machine(library, shape, num_blocks).step(rows)
    assert found[7].isnan().any() and not found[40:].isnan().any()
    assert head == 0 or found[8:40].isnan().any(1).all()


def test_the_output_is_also_given_as_integers(library: Library) -> None:
    shape = Shape(query_heads=3, heads=1, head_dim=48)
    rows = empty_rows(5, 144)
    tables, num_blocks = handed_out([5], shape.block_size)
    found = Machine(library, shape, num_blocks).step([Row(tables[0], 0, heads_of(shape, 5, 0))], rows.structure())
    restored = rows.values[:, :144].float() * rows.scales[:, None]
    assert (restored - found).abs().max() <= 0.51 * found.abs().max() / 127


def test_copied_blocks_hold_what_their_sources_hold(library: Library) -> None:
    shape = Shape("uint4")
    machine = Machine(library, shape, num_blocks=8)
    machine.step([Row([3, 1], 0, heads_of(shape, 30, 0))])
    machine.kv.copy_blocks(numpy.array([3, 1]), numpy.array([6, 7]))
    for copied, source in zip(
        machine.kv.stored(0, numpy.array([6])), machine.kv.stored(0, numpy.array([3])), strict=True
    ):
        assert numpy.array_equal(copied, source)


def test_bytes_a_token_are_what_the_memory_takes() -> None:
    shape = KVShape(num_layers=2, num_kv_heads=3, head_dim=64)
    for kind in KV_FORMATS:
        held = NativeKVCache.allocate(shape, 5, 32, kind)
        taken = sum(part.nbytes for part in held.parts)
        assert taken == 5 * 32 * shape.packed_bytes_per_token(kind), kind


# --- latents ----------------------------------------------------------------------------------------------------------


@for_each("kind", [*KINDS, IN_BYTES])
def test_a_query_attends_alike_in_one_piece_in_pieces_and_token_by_token(kind, variant):
    for layout, block_size, generator in layouts(seed=3):
        rows, num_blocks = paged_step([(290, 290)], block_size, seed=1)
        kv = latent_memory(num_blocks, block_size, layout.width, kind, generator)
        query = torch.randn(290, layout.num_heads * layout.width, generator=generator)
        whole = RECORDED[LATENTS](query, layout, kv, rows)
        expected = OPS[LATENTS].reference(query, layout, plain_latents(kv, layout.rank), rows)
        error = {"bf16": 1e-2, IN_BYTES: 3e-2}.get(kind, 1e-4)
        torch.testing.assert_close(whole, expected, rtol=error, atol=max(error, 1e-2))
        for threads, cuts in ((1, range(1, 291)), (2, (16, 290)), (3, (37, 74, 255, 256, 257, 290))):
            load().set_threads(threads)
            starts = torch.tensor([0, *cuts], dtype=torch.int32)
            pieces = replace(
                rows,
                query_starts=starts,
                context_lengths=starts[1:].clone(),
                block_tables=rows.block_tables.expand(len(starts) - 1, -1),
            )
            assert torch.equal(RECORDED[LATENTS](query, layout, kv, pieces), whole), (
                f"{threads} threads, {len(cuts)} pieces"
            )


def test_latents_in_bytes_and_the_keys_behind_them_are_rounded_by_their_own_largest_number(variant):
    store = "latent_attention.store_latents"
    for plain, in_bytes in zip(*(stored_with_large_keys(kind, seed=2) for kind in ("fp32", IN_BYTES)), strict=True):
        _, layout, _, kv, rows = in_bytes
        OPS[store].reference(*plain)
        RECORDED[store](*in_bytes)
        where = rows.kv_slots // kv.block_size, rows.kv_slots % kv.block_size, 0
        for part in (slice(layout.rank), slice(layout.rank, None)):
            expected = plain[3].keys[where][:, part]
            error = (plain_latents(kv, layout.rank).keys[where][:, part] - expected).abs().amax(1)
            assert (error <= expected.abs().amax(1) / 127 * 0.503).all()  # half a step, whose size is a float16


@for_each("name, inputs", [("latent_query", query_inputs), ("latent_values", value_inputs)])
def test_a_row_meets_its_heads_weights_alike_alone_and_in_company(name, inputs, variant):
    multiply = RECORDED[f"latent_attention.{name}"]
    for x, weights, layout, *rotation in inputs(seed=5):
        for threads, row in product((1, 2, 3), (0, 33, 64, 66)):
            load().set_threads(threads)
            together = multiply(x, weights, layout, *rotation)
            own = [each._replace(positions=each.positions[row : row + 1]) for each in rotation]
            assert torch.equal(multiply(x[row : row + 1].clone(), weights, layout, *own)[0], together[row])


@for_each("num_heads, size", [(1, 1), (6, 6), (16, 16), (17, 17), (20, 10), (128, 16)])
def test_heads_look_at_latents_in_groups_of_one_size(num_heads, size):
    assert heads_in_a_group(num_heads) == size
