"""The memory plan: what is granted, what is refused, and that the refusal's figure would have been granted."""

import re

import pytest
from builders.cases import for_each

from penstock.protocol.errors import ConfigError, OutOfMemoryError
from penstock.protocol.media import MediaPlan
from penstock.protocol.options.config import EngineConfig
from penstock.worker.start.memory.plan import host_bytes_of, memory_plan
from penstock.worker.start.memory.profile import MemoryProfile, Size
from penstock.worker.start.memory.shares import GroupSize

MIB, GIB = 1 << 20, 1 << 30


def plan(*, device="cpu", available=64 * GIB, block=MIB, context=4096, groups=None, **given):
    """Sizes of the profile, and options."""
    names = ("host", "weight", "activation", "adapter", "mapped", "other_mapped")
    sizes = {f"{name}_bytes": given.pop(f"{name}_bytes", 0) for name in names}
    media, cut = given.pop("media", None), given.pop("context_cut", "")
    config = EngineConfig.from_options("m", **given)
    found = MemoryProfile(
        device=device, device_name="", available_bytes=available, groups=groups or (GroupSize("full", 1, block),),
        model_context=context, vocab_size=10, dtype="bfloat16", kv_dtype="", media=media, context_cut=cut,
        **sizes,
    )  # fmt: skip
    return memory_plan(config, Size.of(config, device.partition(":")[0]), found)


@for_each("given, num_blocks", [
    # What all sequences need, and no more.
    ({"max_num_seqs": 2, "max_model_len": 320}, 20),
    # A quarter of what was free before the weights, shared by all ranks.
    ({"available": 2 * GIB, "weight_bytes": 2 * GIB, "context": 1024}, 1024),
    ({"available": 2 * GIB, "weight_bytes": 2 * GIB, "context": 1024, "tensor_parallel_size": 2}, 512),
    # One request of a length that was given always fits.
    ({"available": 200 * MIB, "max_model_len": 4096}, 128),
    # Options name the number.
    ({"kv_cache_memory": "300MiB"}, 300),
    ({"kv_cache_memory": "300MiB", "num_gpu_blocks_override": 7, "max_model_len": 200}, 7),
    # A card is filled.
    ({"device": "cuda:0", "available": 10 * GIB, "activation_bytes": 2 * GIB}, 8 * 1024),
])  # fmt: skip
def test_as_many_blocks_are_planned_as_requests_need_and_memory_has(given, num_blocks):
    assert plan(**given).num_blocks == num_blocks


def test_a_context_that_memory_cuts_leaves_states_for_other_requests():
    """Qwen3.5-4B's sizes: with the states of one request alone, the turns of a conversation would find none again."""
    groups = (GroupSize("full", 8, MIB), GroupSize("state", 24, 50 * MIB))
    found = plan(groups=groups, context=262_144, weight_bytes=8 * GIB)
    context, states = found.max_model_len, found.groups[1].num_blocks
    assert (context, states) == (45_952, 7)
    [note] = found.notes
    whole = plan(groups=groups, context=262_144, kv_cache_memory=int(re.search(r"kv_cache_memory=(\d+)", note)[1]))
    assert whole.max_model_len == 262_144 and not whole.notes
    assert plan(groups=groups, context=262_144, max_model_len=60_000).max_model_len == 60_000, "as it was asked for"


def test_rows_of_pictures_are_set_aside_by_every_rank():
    media = MediaPlan(num_rows=1024, row_bytes=440 << 10, num_layers=1, most_patches=1, most_of_frame=1)
    options = dict(available=512 * MIB, context=512, kv_cache_memory=64 * MIB, tensor_parallel_size=2)
    assert host_bytes_of(plan(**options, media=media)) == host_bytes_of(plan(**options)) + 440 * MIB
    with pytest.raises(OutOfMemoryError):
        plan(**options | {"available": 500 * MIB}, media=media)


def test_room_for_adapters_is_taken_before_blocks_and_named_where_it_leaves_none():
    found = plan(available=200 * MIB, adapter_bytes=150 * MIB, context=1024, max_num_seqs=64)
    assert (found.num_blocks, found.adapter_bytes) == (50, 150 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"200 MiB for adapters \(max_loras"):
        plan(available=200 * MIB, adapter_bytes=200 * MIB)


def test_an_unset_length_is_cut_to_what_the_blocks_hold_and_said_so():
    found = plan(available=200 * MIB)
    assert (found.num_blocks, found.max_model_len, found.model_context) == (50, 1600, 4096)
    assert "4,096" in found.notes[0] and "1,600" in found.notes[0]


def test_a_length_beyond_where_attention_is_exact_is_refused_with_the_reason():
    reason = "beyond that, sparse_config in config.json asks for sparse attention, which is not supported"
    with pytest.raises(ConfigError, match=f"more than the 4,096 tokens up to which attention is exact: {reason}. Use"):
        plan(max_model_len=5000, context_cut=reason)


@for_each("options, error", [
    ({"max_model_len": 5000}, ConfigError),
    ({"max_model_len": 2000, "kv_cache_memory": 40 * MIB}, ConfigError),
    ({"max_model_len": 2000, "num_gpu_blocks_override": 40}, ConfigError),
    ({"max_model_len": 4096, "available": 100 * MIB}, OutOfMemoryError),
    ({"num_gpu_blocks_override": 101, "available": 110 * MIB, "activation_bytes": 10 * MIB}, OutOfMemoryError),
    ({"max_model_len": 4096, "available": 100 * MIB, "device": "cuda:0"}, OutOfMemoryError),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_figure_that_would(options, error):
    with pytest.raises(error) as refused:
        plan(**options)
    name, figure = re.search(r"Use (\w+)=([\d,]+)", str(refused.value)).groups()
    options = {**options, name: int(figure.replace(",", ""))}
    assert plan(**options).num_blocks > 0
    with pytest.raises(error):
        plan(**{**options, name: options[name] + 32})


def test_a_second_tier_holds_what_swap_space_says():
    assert [plan(**given).num_cpu_blocks for given in ({}, {"swap_space": 0}, {"swap_space": 1.5})] == [0, 0, 1536]
    card = plan(device="cuda:0", available=10 * GIB, host_bytes=5 * GIB, swap_space=4)
    assert (card.num_blocks, card.num_cpu_blocks) == (10 * 1024, 4 * 1024)
    with pytest.raises(ConfigError, match=r"0\.0005 GiB holds no KV block: one needs 1 MiB"):
        plan(swap_space=0.0005)


@for_each("options", [
    {"device": "cuda:0", "available": 10 * GIB, "host_bytes": 3 * GIB + 7},
    {"available": 4 * GIB, "kv_cache_memory": "500MiB", "activation_bytes": 300 * MIB},
])  # fmt: skip
def test_a_second_tier_that_does_not_fit_into_cpu_memory_is_refused_with_the_figure_that_would(options):
    with pytest.raises(OutOfMemoryError) as refused:
        plan(**options, swap_space=8)
    figure = float(re.search(r"Use swap_space=([\d.]+)", str(refused.value))[1])
    assert figure >= 3
    assert plan(**options, swap_space=figure).num_cpu_blocks * MIB > (figure - 0.01) * GIB
    with pytest.raises(OutOfMemoryError):
        plan(**options, swap_space=figure + 0.02)


@for_each("given", [1, "1KiB", MIB - 1])
def test_memory_for_blocks_that_holds_none_is_blamed_by_its_own_name(given):
    words = r"kv_cache_memory=\d+ holds no KV block: one of 32 tokens needs 1 MiB. Use 1048576 or more"
    with pytest.raises(ConfigError, match=words):
        plan(kv_cache_memory=given)


@for_each("kind, others", [("windows", "its windows take"), ("states", "its states take")])
def test_what_does_not_fit_names_the_kinds_of_memory_that_the_model_has_and_no_others(kind, others):
    groups = (GroupSize("full", 4, MIB), GroupSize(kind[:-1], 12, MIB, window=8 if kind == "windows" else None))
    with pytest.raises(ConfigError, match=r"one of 32 tokens in each group of layers.* needs [23] MiB") as refused:
        plan(groups=groups, kv_cache_memory=1)
    assert ("states" in str(refused.value)) == (kind == "states")
    with pytest.raises(ConfigError, match=f"needs 16 KV blocks, and what {others} .*, and there is 1 "):
        plan(groups=groups, num_gpu_blocks_override=1, max_model_len=512)


def test_more_memory_for_blocks_than_there_is_names_what_fits():
    with pytest.raises(OutOfMemoryError) as refused:
        plan(available=5 * MIB, kv_cache_memory="1GiB")
    words = str(refused.value)
    assert words.startswith("kv_cache_memory=1,073,741,824 is 1 GiB in 1,024 KV blocks, and 5 MiB are left")
    fits = int(re.search(r"Use kv_cache_memory=([\d,]+) or less", words)[1].replace(",", ""))
    assert plan(available=5 * MIB, kv_cache_memory=fits).num_blocks == 5
    with pytest.raises(OutOfMemoryError, match="num_gpu_blocks_override=9 needs 9 MiB.* Use num_gpu_blocks_override=5"):
        plan(available=5 * MIB, num_gpu_blocks_override=9)


def test_a_step_that_leaves_no_block_is_refused_and_one_larger_than_memory_blamed():
    with pytest.raises(OutOfMemoryError, match="One KV block"):
        plan(available=5 * MIB, activation_bytes=5 * MIB)
    with pytest.raises(OutOfMemoryError, match="max_num_batched_tokens=.* needs 6 MiB for .*, and 5 MiB are free"):
        plan(available=5 * MIB, activation_bytes=6 * MIB, kv_cache_memory="1MiB")


# --- several groups of layers -----------------------------------------------------------------------------------------

KINDS = {
    "windows": (GroupSize("full", 4, MIB), GroupSize("window", 22, 5 * MIB, window=512)),
    "states": (GroupSize("full", 4, MIB), GroupSize("state", 12, 50 * MIB)),
    "windows alone": (GroupSize("window", 4, MIB, window=1024),),
}


@for_each("kinds", KINDS)
@for_each("options, error", [
    ({"max_model_len": 3000, "kv_cache_memory": 110 * MIB}, ConfigError),
    ({"max_model_len": 3000, "num_gpu_blocks_override": 20}, ConfigError),
    ({"max_model_len": 3000, "available": 110 * MIB}, OutOfMemoryError),
])  # fmt: skip
def test_of_several_kinds_too_little_memory_is_refused_with_figures_that_would_do(kinds, options, error):
    options = {"groups": KINDS[kinds], "max_num_batched_tokens": 64, "max_num_seqs": 4, **options}
    if kinds == "windows alone":
        options |= {name: options[name] // 4 for name in ("kv_cache_memory", "available") if name in options}
    with pytest.raises(error) as refused:
        plan(**options)
    names = "max_model_len|kv_cache_memory|num_gpu_blocks_override"
    for name, figure in re.findall(rf"({names})=([\d,]+)", str(refused.value)):
        if figure != "3,000":
            assert plan(**{**options, name: int(figure.replace(",", ""))}).max_model_len > 0, name


def test_a_number_of_blocks_is_that_of_the_longest_contexts_and_other_kinds_get_what_fits_to_it():
    found = plan(groups=KINDS["windows"], num_gpu_blocks_override=200, max_num_batched_tokens=64)
    rest = (200 - 128) * MIB  # beyond what a request of 4,096 tokens needs
    window = (511 + 64 + 30) // 32 + 1
    assert [group.num_blocks for group in found.groups] == [200, window + rest // (5 * MIB)]


def test_all_kinds_together_take_what_was_asked_for_and_the_second_tier_is_shared_out_alike():
    found = plan(groups=KINDS["states"], kv_cache_memory=1000 * MIB, swap_space=0.5, max_num_seqs=4)
    assert 900 * MIB < found.kv_bytes <= 1000 * MIB
    full, states = found.groups
    # A request of 4,096 tokens needs 128 blocks and 2 states; of the rest each kind has as many bytes.
    assert 0 <= (full.num_blocks - 128) * MIB - (states.num_blocks - 2) * 50 * MIB < 50 * MIB
    for group in found.groups:
        assert group.num_cpu_blocks == group.num_blocks * 512 * MIB // found.kv_bytes


@for_each("given, num_blocks", [
    ({"weight_bytes": 512 * MIB}, 2048),  # no more than 2 GiB
    ({"weight_bytes": 400 * MIB}, 1600),  # no more than four times the weights
    ({"weight_bytes": 200 * MIB, "tensor_parallel_size": 2}, 800),  # which are those of all ranks
    ({"weight_bytes": MIB}, 256),  # and for a small model no more than 256 MiB
    ({"weight_bytes": MIB, "max_model_len": 16384}, 512),  # unless a length was given that needs more,
    ({"weight_bytes": MIB, "kv_cache_memory": "3GiB"}, 3072),  # or the bytes
])  # fmt: skip
def test_a_cpu_takes_no_more_kv_memory_unasked_than_suits_the_model(given, num_blocks):
    found = plan(context=given.get("max_model_len", 4096), max_num_seqs=64, **given)
    assert (found.num_blocks, found.max_model_len, found.notes) == (num_blocks, found.model_context, [])


def test_all_kinds_of_layers_share_what_is_taken_unasked():
    found = plan(groups=KINDS["windows"], max_num_seqs=64, max_num_batched_tokens=64, weight_bytes=GIB)
    assert 1.9 * GIB < found.kv_bytes <= 2 * GIB and found.max_model_len == 4096


# --- weights that are mapped from the disk ----------------------------------------------------------------------------


def mapped_plan(mapped: int, others: int = 0, **options):
    """Where 1600 MiB were free before anything was mapped."""
    sizes = dict(weight_bytes=mapped, mapped_bytes=mapped, other_mapped_bytes=others, activation_bytes=10 * MIB)
    return plan(available=1600 * MIB - mapped - others, **sizes, **options)


@for_each("given, num_blocks, resident, words", [
    # It takes what mapped weights leave, or beside those that do not fit a sixteenth of what is free.
    (dict(mapped=1400 * MIB), 190, 1400 * MIB, None),
    (dict(mapped=2400 * MIB), 100, 1490 * MIB, "of 2.3 GiB about 1.5 GiB (62 %)"),
    (dict(mapped=2400 * MIB, max_model_len=320), 100, 1490 * MIB, "of 2.3 GiB about 1.5 GiB (62 %)"),
    # A length that was given has its blocks, and weights give way.
    (dict(mapped=2400 * MIB, max_model_len=4096), 128, 1462 * MIB, "of 2.3 GiB about"),
    (dict(mapped=1500 * MIB, max_model_len=4096), 128, 1462 * MIB, "of 1.5 GiB about"),
    # Ranks share what is free for their weights.
    (
        dict(mapped=1200 * MIB, others=1200 * MIB, tensor_parallel_size=2),
        50, 740 * MIB, "of 1.2 GiB about 740 MiB (61 %)",
    ),
])  # fmt: skip
def test_kv_memory_that_nobody_asked_for_takes_what_mapped_weights_leave(given, num_blocks, resident, words):
    found = mapped_plan(**given)
    assert (found.num_blocks, found.resident_bytes) == (num_blocks, resident)
    if words is None:
        assert "larger than memory" not in " ".join(found.notes)
    else:
        assert words in found.notes[-1] and " stay in memory. The rest is read" in found.notes[-1]
        assert "Use quantization='int8', a smaller model, or more memory." in found.notes[-1]


def test_kv_memory_that_was_asked_for_must_fit_without_the_weights():
    found = mapped_plan(mapped=2400 * MIB, kv_cache_memory="1200MiB")
    assert (found.num_blocks, found.resident_bytes) == (1200, 390 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"and 1\.55 GiB are left"):
        mapped_plan(mapped=2400 * MIB, kv_cache_memory="1600MiB")
