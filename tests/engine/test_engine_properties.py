"""Whatever comes, in whatever order, under whatever limits: blocks are conserved, tables are sound, and every sequence
ends exactly once with exactly the tokens that it would have got alone.

`Harness` checks the scheduler after every step, and its worker compares everything that a row reads from the KV blocks
with the row's own history. A router that hears nothing but the cache's events knows what can be found in it.
"""

from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from builders.engine_harness import Harness, answer, drawn, medium, prompt, with_claims
from builders.erratic_pace import hold_back
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.engine.admission.limits import DraftLimits
from penstock.engine.memory import disk_stores
from penstock.engine.memory.disk_fetches import PATIENCE
from penstock.protocol.layer_groups import GroupPlan, blocks_touched
from penstock.protocol.media import MediaPlan, Medium
from penstock.protocol.messages import FailedRow, Prompt, Said, request_and_sample, sequence_id
from penstock.protocol.wire import column, values

MAX_MODEL_LEN = 60

limits = st.fixed_dictionaries(
    {
        # Mostly too little for what runs, seldom too little for one.
        "num_blocks": st.sampled_from([16, 20, 12, 24, 40, 6]),
        "block_size": st.sampled_from([4, 2, 8, 1]),
        "max_num_seqs": st.sampled_from([4, 6, 3, 8, 1]),
        "max_num_batched_tokens": st.sampled_from([16, 24, 7, 60, 1]),
        "static_decode_blocks": st.sampled_from([0, 1, 2]),
        "kv_cache_ratio": st.sampled_from([None, None, 0.3, 0.8]),
        "enable_chunked_prefill": st.sampled_from([True, True, True, False]),
        "max_num_partial_prefills": st.sampled_from([None, None, 1, 2]),
        "max_long_partial_prefills": st.sampled_from([None, None, 1]),
        "long_prefill_token_threshold": st.sampled_from([None, None, 10]),
        "shares_prefixes": st.booleans(),
        "num_cpu_blocks": st.sampled_from([0, 8, 1, 3, 40]),
        "stretches": st.sampled_from([(), (), (9, 18, 36, 60), (16, 32, 60), (25, 60)]),
        "num_layers": st.sampled_from([4, 8, 2]),
        "num_disks": st.sampled_from([0, 0, 1, 2]),
        "draft_limits": st.sampled_from([None, DraftLimits(5, 40), DraftLimits(1, 3), DraftLimits(9, 30)]),
    }
)


@st.composite
def mixes(draw) -> tuple[GroupPlan, ...]:
    """Groups of layers in any mix, attention before states, as plans have them."""
    kinds = draw(
        st.sampled_from(
            ["full state", "full window", "state", "window", "full window window", "window state", "full window state"]
        )
    ).split()
    return tuple(draw(GROUPS[kind]) for kind in kinds)


def groups_of(kind: str, num_blocks: list[int], windows: list[int | None]) -> st.SearchStrategy[GroupPlan]:
    numbers, cells = st.sampled_from(num_blocks), st.sampled_from([0, 8, 1, 40])
    return st.builds(
        lambda blocks, window, cells: GroupPlan(kind, 1, 1, blocks, window, cells),
        numbers,
        st.sampled_from(windows),
        cells,
    )


GROUPS = {
    "full": groups_of("full", [16, 24, 60, 6], [None]),
    "window": groups_of("window", [16, 8, 24, 4, 60], [6, 1, 9, 16, 2, 40]),
    "state": groups_of("state", [8, 4, 16, 2, 1], [None]),
}

# Few different tokens at few lengths, so that prefixes are shared by chance and by repetition.
token_ids = st.builds(
    lambda stem, length, tail: [stem] * length + tail,
    st.integers(1, 2),
    st.sampled_from([40, 7, 16, 0, 25, 33]),
    st.lists(st.integers(1, 3), max_size=12),
)

params = st.fixed_dictionaries(
    {
        "max_tokens": st.sampled_from([20, 30, 6, 1]),
        "n": st.sampled_from([1, 1, 1, 2, 4]),
        "priority": st.integers(-1, 1),
        "temperature": st.sampled_from([0, 1]),
        "stop_token_ids": st.sampled_from([None, None, list(range(0, 512, 19))]),
        "eos_token_id": st.sampled_from([[], [511], list(range(4, 512, 23))]),
        "cache_salt": st.sampled_from([None, None, "salt"]),
        "prompt_logprobs": st.sampled_from([None, None, 1]),
        "logprobs": st.sampled_from([None, None, 2]),
    }
)

# Pictures of the same tokens, each with the lengths of the spans that its rows stand in, and its patches.
PICTURES = {1: ((3,), 4), 2: ((6,), 400), 3: ((2, 3), 8), 4: ((3,), 4), 5: ((9,), 300), 6: ((6,), 8)}
PLACEHOLDER = 500

# Before each picture stand so many tokens of text; behind them all, the rest.
pictures = st.lists(st.tuples(st.sampled_from([0, 4, 1]), st.sampled_from(list(PICTURES))), min_size=1, max_size=4)


def with_pictures(token_ids: list[int], chosen: list[tuple[int, int]]) -> tuple[list[int], list[Medium]]:
    placed: list[int] = []
    media = []
    for gap, picture in chosen:
        lengths, num_patches = PICTURES[picture]
        placed += token_ids[:gap]
        spans = []
        for length in lengths:
            spans.append((len(placed), length))
            placed += [PLACEHOLDER] * length + [1]
        media.append(medium(picture, *spans, num_patches=num_patches))
    return placed + token_ids, media


# What happens next; the numbers choose among what there is at that time.
actions = st.one_of(
    *[
        st.tuples(
            st.just("add"),
            token_ids,
            params,
            st.sampled_from(["", "", "a", "b"]),
            st.booleans(),
            st.just([]) | pictures,
            st.just([]) | st.lists(st.integers(0, 40), max_size=4),
        )
    ]
    * 4,
    *[st.tuples(st.just("step"), st.integers(1, 9))] * 3,
    st.tuples(st.just("abort"), st.integers(0, 50)),
    st.tuples(st.just("stop string"), st.integers(0, 50)),
    st.tuples(st.just("fail"), st.integers(0, 50)),
    st.tuples(st.just("slow disk")),
)


def begun(asked: Prompt, lengths: list[int]) -> list[Said]:
    """What the first samples have said after so many tokens, or when they have ended."""
    whole = [answer(asked, sample, MAX_MODEL_LEN)[0] for sample in range(len(lengths))]
    return [Said(column(tokens[:length])) for tokens, length in zip(whole, lengths, strict=True)]


def expectations(asked: Prompt) -> list[bytes]:
    """What each sample will say, to draft from."""
    return [column(answer(asked, sample, MAX_MODEL_LEN)[0]) for sample in range(asked.params.n)]


@dataclass
class Run:
    harness: Harness
    steps_in_flight: int
    asked: dict[int, Prompt] = field(default_factory=dict)
    disturbed: set[int] = field(default_factory=set)  # sequences that were aborted or failed

    def act(self, action: tuple) -> None:
        match action:
            case "add", tokens, chosen, client, is_streamed, shown, lengths:
                request_id = len(self.asked)
                settled = {**chosen, "min_tokens": chosen["max_tokens"] // 3}
                tokens, media = with_pictures(tokens, shown if self.harness.limits.media else [])
                asked = prompt(request_id, tokens, client=client, media=media, **settled)
                lengths = [0] if chosen["prompt_logprobs"] is not None else lengths  # which takes a step
                if tokens and len(tokens) < MAX_MODEL_LEN and len(lengths) > 2:
                    wholes = [answer(asked, sample, MAX_MODEL_LEN)[0] for sample in range(chosen["n"])]
                    asked, lengths = with_claims(asked, wholes, lengths[0]), []
                said = begun(asked, lengths[: chosen["n"]]) if tokens else []
                expected = expectations(asked) if self.harness.limits.draft_limits and tokens else []
                self.asked[request_id] = replace(asked, is_streamed=is_streamed, said=said, expected=expected)
                self.harness.add(self.asked[request_id])
            case "step", count:
                for _ in range(count):
                    self.harness.go_on(self.steps_in_flight)
            case "abort", number:
                self.abort(number, list(self.harness.scheduler.sequences))
            case "stop string", number:  # seen in what has come, so it was opened
                self.abort(number, [each for each, heard in self.harness.heard.items() if heard.tokens])
            case "fail", number:
                self.fail(number)
            case ("slow disk",):
                self.harness.now += PATIENCE
                self.harness.scheduler.arrivals.let_in_late()

    def abort(self, number: int, candidates: list[int]) -> None:
        if candidates:
            chosen = candidates[number % len(candidates)]
            self.disturbed.add(chosen)
            self.harness.abort(chosen)

    def fail(self, number: int) -> None:
        if not self.harness.results or not self.harness.results[-1].num_sampled:
            return
        result = self.harness.results[-1]
        counts, sampled = list(values(result.num_sampled)), list(values(result.sampled))
        row = number % len(counts)
        if counts[row] and not result.failed:
            self.disturbed.add(self.harness.scheduler.in_flight[-1].rows[row].id)
            left, end = number % counts[row], sum(counts[: row + 1])  # tokens of the row before the broken one
            del sampled[end - counts[row] + left : end]
            counts[row] = left
            result.num_sampled, result.sampled = column(counts), column(sampled)
            result.failed = [FailedRow(row, "injected")]
            answered = [each for each in result.logprobs if each.owner == row and not each.is_prompt]
            result.logprobs = [each for each in result.logprobs if each not in answered[left:]]

    def check_end(self) -> None:
        self.harness.run(self.steps_in_flight)
        stats = self.harness.scheduler.stats()
        assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.blocks)
        assert sum(heard.preemptions for heard in self.harness.heard.values()) == stats.preemptions
        for request_id, asked in self.asked.items():
            for sample in range(asked.params.n):
                self.check_answer(sequence_id(request_id, sample), asked)

    def check_answer(self, sequence: int, asked: Prompt) -> None:
        heard = self.harness.heard[sequence]
        assert heard.ended is not None, "every sequence ends"
        if heard.ended.error_code == 400:
            assert heard.published == []
            return
        sample = request_and_sample(sequence)[1]
        expected, reason = drawn(asked, sample, *answer(asked, sample, MAX_MODEL_LEN))
        assert heard.tokens == expected[: len(heard.tokens)]
        if heard.ended.error_code == 429:
            pool, num_prompt = self.harness.scheduler.cache.capacity, len(asked.token_ids) // 4
            assert num_prompt + len(heard.tokens) == max(pool + 1, num_prompt + len(heard.said))
        elif sequence not in self.disturbed or heard.ended.error_code == 200:
            assert (heard.tokens, heard.ended.finish_reason) == (expected, reason)
            assert heard.forward_time == self.harness.num_steps[sequence]
            if asked.params.logprobs is not None:
                assert heard.positions == len(heard.published)
            if asked.params.prompt_logprobs is not None and sequence == sequence_id(asked.request_id, 0):
                assert heard.prompt_positions == len(asked.token_ids) // 4 - 1


def play(options: dict, steps_in_flight: int, seed: int, history: list[tuple]) -> None:
    """Play it once, and once more with what is on disk then, if anything may be."""
    before = None
    with patch.object(disk_stores, "LEAST_TOKENS", 1):
        for _ in range(1 + bool(options["num_disks"])):
            harness = Harness(max_model_len=MAX_MODEL_LEN, drafts=seed, is_observed=True, **options)
            if before is not None:
                harness.disk.begin_with(before, harness.scheduler)
            if seed:
                hold_back(harness.scheduler, seed)
            run, before = Run(harness, steps_in_flight), harness.disk
            for action in history:
                run.act(action)
            run.check_end()


def with_groups(options: dict, groups: tuple[GroupPlan, ...], checkpoint_every: int) -> dict:
    rest = {name: value for name, value in options.items() if name not in ("num_blocks", "num_cpu_blocks")}
    return {**rest, "groups": groups, "checkpoint_every": checkpoint_every}


media_limits = st.fixed_dictionaries(
    {
        "media": st.builds(
            MediaPlan,
            num_rows=st.sampled_from([9, 6, 14, 40]),
            row_bytes=st.just(1),
            num_layers=st.sampled_from([3, 1, 8]),
            most_patches=st.just(100_000),
            most_of_frame=st.sampled_from([100_000, 100_000, 10]),
            num_full_layers=st.sampled_from([0, 3]),
            patch_keys=st.sampled_from([1, 20]),
            has_whole_spans=st.booleans(),
        ),
        "mm_encoder_budget": st.sampled_from([None, 1, 500]),
    }
)
grouped_limits = st.builds(with_groups, limits, mixes(), st.sampled_from([16, 5, 2048]))


def seeing(options: dict, media: dict) -> dict:
    """With windows that hold what a step computes of one sequence, as plans have them: some spans can't be split."""
    size, most = options["block_size"], options["max_num_batched_tokens"]
    groups = [
        group if group.window is None
        else replace(group, num_blocks=max(group.num_blocks, blocks_touched(group.window - 1 + most, size)))
        for group in options["groups"]
    ]  # fmt: skip
    return {**options, **media, "groups": groups}


seeing_limits = st.builds(seeing, grouped_limits, media_limits)
LIMITS = {"one group of layers": limits, "any mix of groups": grouped_limits, "pictures": seeing_limits}


@pytest.mark.parametrize("kind", LIMITS)
@given(st.data(), st.integers(1, 3), st.integers(0, 99), st.lists(actions, min_size=8, max_size=30))
@settings(max_examples=43)
def test_every_sequence_ends_once_with_its_own_tokens_whatever_the_company(kind, data, steps_in_flight, seed, history):
    play(data.draw(LIMITS[kind]), steps_in_flight, seed, history)


@pytest.mark.long
@pytest.mark.parametrize("kind", LIMITS)
@given(st.data(), st.integers(1, 3), st.integers(0, 99), st.lists(actions, min_size=20, max_size=100))
@settings(max_examples=2700)
def test_every_sequence_ends_once_with_its_own_tokens_in_long_histories(kind, data, steps_in_flight, seed, history):
    play(data.draw(LIMITS[kind]), steps_in_flight, seed, history)
