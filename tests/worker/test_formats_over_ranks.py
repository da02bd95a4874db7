"""Two ranks read their shares of any checkpoint, in any layout or form of numbers, and compute what one computes.

One pair of ranks, which are threads, computes everything that is compared here.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import PROMPTS, found_by_ranks
from builders.gguf_models import as_gguf, q4_k_m
from builders.hand_driven import HandDriven
from builders.native_variants import available_variants, forced, needs_variant
from builders.quantized_model import mxfp4_model
from builders.tiny_configs import MIXTURE as GEMMA4_MIXTURE
from builders.tiny_model import tiny_model

from penstock.worker.ranks.host_ranks import HostRanks
from penstock.worker.start.load import load_model

from .test_gguf_types import K_SHAPES, SHAPES, of_each_kind
from .test_other_layouts import pair_of

BY_EXPERT = {"expert_parallel": True}
SEVEN = {"num_experts": 7, "num_experts_per_tok": 7}
# The family, what its checkpoint has otherwise, and how the ranks load it.
SPLITS = {
    2: [
        ("qwen3", {}, {}),
        ("llama", {"attention_bias": True, "mlp_bias": True}, {}),
        ("ernie4_5", {"num_attention_heads": 6, "num_key_value_heads": 1}, {}),
        ("youtu", {"attention_bias": True}, {}),
        ("deepseek_v3", {}, {}),
        ("qwen2", {"num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 224}, {}),
        ("olmo2", {"num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 64, "attention_bias": True}, {}),
        ("granite", {"mlp_bias": True}, {}),
        ("glm4", {"attention_bias": True}, {}),
        ("gemma2", {}, {}),
        ("cohere", {"use_qk_norm": True, "attention_bias": True}, {}),
        ("stablelm", {"qk_layernorm": True, "num_key_value_heads": 1}, {}),
        ("nemotron", {"mlp_bias": True, "intermediate_size": 91}, {}),
        ("gemma4_text", GEMMA4_MIXTURE, {}),
        ("gemma4_text", GEMMA4_MIXTURE | {"num_experts": 5}, BY_EXPERT),
        ("gpt_oss", {"intermediate_size": 39}, {}),
        ("gpt_oss", {"num_local_experts": 5}, BY_EXPERT),
        ("mxfp4", {"dtype": "float32", "intermediate_size": 96}, {}),
        ("mxfp4", {"dtype": "float32", "num_local_experts": 5}, BY_EXPERT),
        ("qwen2_moe", {}, {}),
        ("qwen2_moe", {}, BY_EXPERT),
        ("qwen3_moe", SEVEN, {}),
        ("qwen3_moe", SEVEN, BY_EXPERT),
        ("qwen3_moe", {"num_experts": 1, "num_experts_per_tok": 1}, {}),
        ("qwen3_5_text", {"attention_bias": True, "num_key_value_heads": 1}, {}),
        ("qwen3_next", {}, {}),
        ("qwen3_next", {}, BY_EXPERT),
        ("lfm2", {"conv_bias": True}, {}),
    ],
    3: [
        ("qwen3_5_moe_text", {"num_attention_heads": 6}, {}),
        ("llama", {"num_key_value_heads": 3}, {}),
        ("mistral", {"num_attention_heads": 9}, {}),
    ],
}

LAYOUTS = [
    *(("phi3", 2), ("groups of 3", 2), ("groups of 3", 1), ("biases of Paddle", 2), ("square", 2)),
    *(("one key-value head, bfloat16", 2), ("experts, untied", 2), ("experts, square", 2)),
]
# Widths of 3 blocks, so that the ranks' shares are unlike, and heads that cut through blocks.
GGUF: dict[str, tuple[str, dict[str, Any], Any, bool]] = {
    "unlike shares": ("qwen3", K_SHAPES | {"intermediate_size": 768, "head_dim": 32}, q4_k_m, False),
    "cut through blocks": (
        "llama", SHAPES | {"num_attention_heads": 6, "head_dim": 16, "num_key_value_heads": 2}, of_each_kind, False,
    ),
    "experts by width": ("qwen3_moe", SHAPES | {"moe_intermediate_size": 96}, lambda name: "Q8_0", False),
    "whole experts": ("qwen3_moe", SHAPES | {"moe_intermediate_size": 96}, lambda name: "Q8_0", True),
    "latents": ("deepseek_v3", SHAPES | {"kv_lora_rank": 32, "qk_nope_head_dim": 32}, lambda name: "Q8_0", False),
    "delta nets": ("qwen3_5_text", SHAPES, lambda name: "Q8_0", False),
}  # fmt: skip
GGUF_PROMPTS = [[7, 8, 9], list(range(20, 50))]
MXFP4 = {"by width": False, "by expert": True}
COMPANY = [[(13 * number + 7 * place) % 290 + 5 for place in range(1 + 11 * number)] for number in range(4)]
# Each row alone, then all together in chunks, by several threads.
RUNS = [*([[row], 5, 1000, 1] for row in COMPANY), *([COMPANY, 5, *each] for each in ((1, 1), (16, 2), (37, 3)))]


class Ranks:
    """Folders of models, and what all ranks found in them.

    A job is a model's folder, options of its load, and runs of it: prompts, answers' length, budget and threads.
    """

    def __init__(self, folder: Path, size: int = 2) -> None:
        self.size = size
        self.jobs: dict[str, dict[str, Any]] = {}
        for number, (family, given, loaded) in enumerate(SPLITS[size]):
            write = {"mxfp4": mxfp4_model}.get(family, partial(tiny_model, family=family))
            self.add(f"split {number}", write(folder / f"split {number}", **given), [[PROMPTS, 4, 32, 1]], **loaded)
        if size == 2:
            self.add_formats(folder)
        self.found: list[dict[str, Any]] = [{} for _ in range(size)]
        for is_plain in (False, True):  # which all ranks are at the same time
            own = {name: job for name, job in self.jobs.items() if job["is_plain"] == is_plain}
            with forced("none") if is_plain else nullcontext(), one_thread_of_torch():
                parts = found_by_ranks(size, folder / f"meet-{is_plain}", partial(computed, jobs=own))
            for found, part in zip(self.found, parts, strict=True):
                found |= part

    def add_formats(self, folder: Path) -> None:
        for name, heads in LAYOUTS:
            pair = pair_of(folder / f"{name} {heads}", name, num_key_value_heads=heads)
            for each, path in zip(("usual", "other"), pair, strict=True):
                self.add(f"{name} {heads} {each}", path, [[PROMPTS, 4, 32, 1]])
        for name, (family, options, types, by_expert) in GGUF.items():
            path = as_gguf(tiny_model(folder / name, family, **options), folder / f"{name} in blocks", types)
            plain = {"dtype": "float32", "expert_parallel": by_expert}
            self.add(name, path, [[GGUF_PROMPTS, 3, 1000, 1]], is_plain=True, **plain)
        if available_variants():
            # Three blocks of width, so that the ranks' shares are unlike.
            path = mxfp4_model(folder / "mxfp4", intermediate_size=96)
            for name, by_expert in MXFP4.items():
                self.add(name, path, RUNS, expert_parallel=by_expert)

    def add(self, name: str, folder: Path, runs: list[Any], is_plain: bool = False, **options: Any) -> None:
        self.jobs[name] = {"folder": str(folder), "runs": runs, "is_plain": is_plain, "options": options}

    def folder(self, name: str) -> Path:
        return Path(self.jobs[name]["folder"])


def computed(ranks: HostRanks, jobs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of each model's runs the tokens and every logit, and how much of its files this rank has read."""
    found = {}
    for name, job in jobs.items():
        model, runs = load_model(Path(job["folder"]), ranks=ranks, **job["options"]), []
        for prompts, count, budget, threads in job["runs"]:
            ranks.exchange([])  # the others compute nothing meanwhile: the number of threads is that of all ranks here
            model.backend.use_threads(threads)
            driven = HandDriven(model)
            logits = driven.greedy([driven.add(prompt) for prompt in prompts], count, budget)
            runs.append([driven.histories, [of_row.tolist() for of_row in logits]])
        model.backend.use_threads(1)
        found[name] = [runs, model.report.bytes_read]
    return found


@contextmanager
def one_thread_of_torch() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks(tmp_path_factory.mktemp("ranks"))


def check_split(ranks: Ranks, number: int) -> None:
    driven = HandDriven(load_model(ranks.folder(f"split {number}")))
    expected = driven.greedy([driven.add(prompt) for prompt in PROMPTS], 4, budget=32)
    for of_rank in ranks.found:
        [[histories, logits]], _ = of_rank[f"split {number}"]
        assert histories == driven.histories
        for own, right in zip(logits, expected, strict=True):
            # Rows that meet MXFP4 are rounded to 8 bits, a rank's share of them with a scale of its own.
            tolerance = 1e-3 if SPLITS[ranks.size][number][0] == "mxfp4" else 1e-4
            torch.testing.assert_close(torch.tensor(own).square().sum(), right.square().sum(), rtol=tolerance, atol=0)


@for_each("number", range(len(SPLITS[2])), ids=lambda number: SPLITS[2][number])
def test_they_share_a_family_and_answer_as_one(ranks, number):
    check_split(ranks, number)


@pytest.mark.long
def test_three_ranks_share_families_and_answer_as_one(tmp_path):
    ranks = Ranks(tmp_path, size=3)
    for number in range(len(SPLITS[3])):
        check_split(ranks, number)


@for_each("name, heads", LAYOUTS)
def test_they_read_their_shares_of_another_layout_and_answer_as_with_the_usual_one(ranks, name, heads):
    for of_rank in ranks.found:
        for each in ("usual", "other"):
            alone = load_model(ranks.folder(f"{name} {heads} {each}")).report.bytes_read
            assert of_rank[f"{name} {heads} {each}"][1] < 0.7 * alone
        assert of_rank[f"{name} {heads} usual"] == of_rank[f"{name} {heads} other"]


@for_each("name", GGUF)
def test_they_share_blocks_of_a_gguf_file_and_compute_what_one_computes(ranks, name):
    driven = HandDriven(load_on("fast", ranks.folder(name), dtype="float32"))
    alone = driven.greedy([driven.add(prompt) for prompt in GGUF_PROMPTS], 3)
    [[_, logits]], _ = ranks.found[0][name]
    for own, expected in zip(logits, alone, strict=True):
        torch.testing.assert_close(torch.tensor(own), expected, atol=1e-4, rtol=1e-4)


@needs_variant
@for_each("name", MXFP4)
def test_a_row_of_experts_in_mxfp4_has_the_same_bits_alone_and_in_any_company(ranks, name):
    for of_rank in ranks.found:
        runs = [rows for _, rows in of_rank[name][0]]
        alone = [rows[0] for rows in runs[: len(COMPANY)]]
        assert all(first != second for first, second in zip(alone, alone[1:]))
        for run, together in zip(RUNS[len(COMPANY) :], runs[len(COMPANY) :], strict=True):
            assert together == alone, f"{run[2]} tokens a step, {run[3]} threads"
