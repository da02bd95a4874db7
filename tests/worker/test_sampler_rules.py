"""Sampling parameters against their statement in a few lines of numpy: each rule that changes logits, the order of
tokens that are equally likely, and the token that all rules together choose; and of what a draw depends.
"""

import math
from functools import cache
from typing import Any

import numpy
import pytest
import torch
from builders import sampled_rows as forms
from builders.cases import for_each
from builders.sampled_rows import adjust, allow, choose, logits_like, most_likely, sample, sampled_rows, scan
from builders.sampling_rules import CASES, next_token

from penstock.kernels.reference.sampling.uniform import uniform
from penstock.kernels.torch import choice
from penstock.protocol.parameters.early_stop import EarlyStop
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import LogitsProcessors, Mask, ParameterTable

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 97
HISTORY = [5, 6, 7, 5, 90, 6, 5]  # the first three are prompt


def adjusted(logits: torch.Tensor, params: SamplingParams, num_prompt: int = 3) -> torch.Tensor:
    """Row 1 of three, between rows that want nothing; these must stay as they are."""
    plain = SamplingParams()
    rows = sampled_rows(
        VOCABULARY, [plain, params, plain], histories=[[1], HISTORY, [2, 3]], num_prompt=[1, num_prompt, 1]
    )
    stack = torch.stack([logits, logits, logits])
    adjust(stack, rows)
    assert torch.equal(stack[0], logits) and torch.equal(stack[2], logits)
    return stack[1]


ENDS = {"eos_token_id": [2, 3000], "stop_token_ids": [9]}
NEVER, EARLY = -math.inf, {2: -math.inf, 9: -math.inf}
# Parameters, and what they add to which token's logit.
ADDED: dict[str, tuple[dict, dict[int, float]]] = {
    "a bias": ({"logit_bias": {3: 7.5, 96: -100}}, {3: 7.5, 96: -100}),
    "a bias for a token beyond the model": ({"logit_bias": {97: 50}}, {}),
    "bad words of one token": ({"bad_words_ids": [[4], [60]], "logit_bias": {4: 100}}, {4: NEVER, 60: NEVER}),
    "the history ends as a bad sequence begins": ({"bad_words_ids": [[5, 11]]}, {11: NEVER}),
    "several do": ({"bad_words_ids": [[6, 5, 12], [90, 6, 5, 13], [6, 6, 14]]}, {12: NEVER, 13: NEVER}),
    "one twice": ({"bad_words_ids": [[5, 11], [5, 11], [5, 15]]}, {11: NEVER, 15: NEVER}),
    "it stands in the history, not at its end": ({"bad_words_ids": [[7, 16]]}, {}),
    "it is longer than the history": ({"bad_words_ids": [[9] * 30 + [17]]}, {}),
    "it is the whole history, prompt and all": ({"bad_words_ids": [[*HISTORY, 18]]}, {18: NEVER}),
    "it ends with no token of this model": ({"bad_words_ids": [[5, 200]]}, {}),
    "fewer than min_tokens were generated": ({"min_tokens": 5, **ENDS}, EARLY),
    "as many as min_tokens were": ({"min_tokens": 4, **ENDS}, {}),
    "all are fewer than min_length": ({"min_length": 8, **ENDS}, EARLY),
    "all are as many": ({"min_length": 7, **ENDS}, {}),
    "one of both limits holds": ({"min_length": 3, "min_tokens": 5, **ENDS}, EARLY),
    "penalties count the answer": (
        {"frequency_penalty": 0.75, "presence_penalty": 0.5},
        {5: -2 * 0.75 - 0.5, 90: -0.75 - 0.5, 6: -0.75 - 0.5},
    ),
}


@for_each("options, added", ADDED.values(), ids=ADDED)
def test_a_rule_adds_to_the_logits_of_its_row_alone(options, added):
    logits = logits_like(1, VOCABULARY)[0]
    expected = logits.clone()
    for token, amount in added.items():
        expected[token] += amount
    torch.testing.assert_close(adjusted(logits, SamplingParams(**options)), expected, atol=1e-6, rtol=0)


def test_before_the_first_token_of_the_answer_nothing_is_penalized():
    logits, params = logits_like(1, VOCABULARY)[0], SamplingParams(frequency_penalty=2, presence_penalty=2)
    assert torch.equal(adjusted(logits, params, num_prompt=len(HISTORY)), logits)


def test_a_mask_leaves_the_tokens_whose_bit_is_set():
    logits = logits_like(3, VOCABULARY)
    allowed = {0, 31, 32, 40, 96}
    words = [sum(1 << token % 32 for token in allowed if token // 32 == word) for word in range(4)]
    bits = numpy.array([words], numpy.uint32).view(numpy.int32)
    expected = logits.clone()
    expected[1, [token for token in range(VOCABULARY) if token not in allowed]] = -math.inf
    allow(logits, sampled_rows(VOCABULARY, [SamplingParams()] * 3), Mask(numpy.array([1]), bits))
    assert torch.equal(logits, expected)


# --- all rules together -----------------------------------------------------------------------------------------------

ROWS, WIDE = 24, 307


def histories(seed: int) -> list[list[int]]:
    """Of few different tokens, so that they repeat."""
    draws = numpy.random.default_rng(seed)
    return [draws.choice([31, 95, 159, 251, 7, 100, 4], draws.integers(1, 30)).tolist() for _ in range(ROWS)]


@cache
def by_the_rule(name: str, ties: bool) -> tuple[dict[str, Any], torch.Tensor, list[int]]:
    """Rows of one request each, their logits, and the token that the rule chooses for each; alike for every form."""
    params = SamplingParams(**CASES[name])
    tokens = histories(len(name))
    num_prompt = [1 + len(history) // 3 for history in tokens]
    logits = logits_like(ROWS, WIDE, seed=len(name), ties=ties)
    lengths = torch.tensor([len(history) for history in tokens])
    drawn = uniform(torch.arange(ROWS), torch.ones(ROWS, dtype=torch.int64), lengths).tolist()
    chosen = [next_token(logits[row].numpy(), tokens[row], num_prompt[row], params, drawn[row]) for row in range(ROWS)]
    return {"histories": tokens, "num_prompt": num_prompt, "seeds": range(ROWS), "samples": [1] * ROWS}, logits, chosen


@for_each("name", CASES)
@for_each("ties", [False, True])
def test_the_token_is_the_one_that_the_rule_chooses(name, ties):
    asked, logits, chosen = by_the_rule(name, ties)
    found = sample(logits.clone(), sampled_rows(WIDE, [SamplingParams(**CASES[name])] * ROWS, **asked))
    assert not found.faults.any()
    assert found.token_ids.tolist() == chosen


@for_each("width, threads", [(WIDE, 1), (30_001, 2)])
def test_a_row_in_mixed_company_is_adjusted_and_drawn_as_alone(width, threads):
    kinds = [SamplingParams(**options) for options in CASES.values()]
    tokens = histories(1)[: len(kinds)]
    num_prompt = [1 + len(history) // 3 for history in tokens]
    logits = logits_like(len(kinds), width, seed=3)
    company, before = sampled_rows(width, kinds, histories=tokens, num_prompt=num_prompt), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        together, chosen = logits.clone(), sample(logits.clone(), company)
        adjust(together, company)
    finally:
        torch.set_num_threads(before)
    for row, params in enumerate(kinds):
        own = sampled_rows(width, [params], histories=[tokens[row]], num_prompt=[num_prompt[row]], seeds=[row])
        alone = logits[row : row + 1].clone()
        assert sample(alone.clone(), own).token_ids[0] == chosen.token_ids[row], params
        adjust(alone, own)
        assert torch.equal(alone[0], together[row]), params


# --- the most likely tokens come in one exact order, however they are found -------------------------------------------

WIDTHS = (1, 7, 300, 4096, 5003, 50257)


@for_each("width", WIDTHS)
@for_each("ties", [False, True])
def test_the_most_likely_are_those_of_a_stable_sort(width, ties):
    values = logits_like(4, width, ties=ties)
    values[0], values[1] = -math.inf, 0.0
    values[2, ::3] = -math.inf
    right = torch.sort(values, dim=-1, descending=True, stable=True).indices
    for count in {1, min(3, width), min(64, width), min(1024, width), width}:
        ordered, ids = most_likely(values[1:], count)
        assert torch.equal(ids, right[1:, :count]), (width, count)
        assert torch.equal(ordered, values[1:].gather(1, ids))
    largest, best, _, _ = scan(values)
    assert torch.equal(best, right[:, 0])
    assert torch.equal(largest, values.amax(-1))
    zeros = torch.zeros(1, width)
    zeros[0, ::2] = -0.0  # those of both signs are equal
    assert most_likely(zeros, min(4, width))[1].tolist() == [list(range(min(4, width)))]
    assert scan(zeros)[1].tolist() == [0]


# --- what is drawn at borders and among equal tokens ------------------------------------------------------------------


def draws(logits: torch.Tensor, params: SamplingParams, count: int, seed: int = 3) -> numpy.ndarray:
    """`count` samples of one row of logits."""
    rows = sampled_rows(len(logits), [params] * count, seeds=[seed] * count, samples=list(range(count)))
    return choose(logits.expand(count, -1).contiguous(), rows).numpy()


def test_temperature_zero_takes_the_best_token_with_the_lowest_id_and_extreme_ones_choose_a_token():
    logits = logits_like(6, 5000, ties=True)
    chosen = choose(logits, sampled_rows(5000, [SamplingParams(temperature=0, top_k=9, top_p=0.1)] * 6))
    assert chosen.tolist() == logits.numpy().argmax(-1).tolist()
    [logits] = logits_like(1, 500)
    assert set(draws(logits, SamplingParams(temperature=1e-300), 20).tolist()) == {int(logits.argmax())}
    assert len(set(draws(logits, SamplingParams(temperature=1e300), 200).tolist())) > 100


def test_equal_tokens_at_the_border_of_top_k_give_way_to_lower_ids():
    logits = torch.full((500,), -1.0)
    logits[[400, 30, 20, 499]] = 2.0
    assert set(draws(logits, SamplingParams(top_k=3), 200).tolist()) == {20, 30, 400}
    assert set(draws(logits, SamplingParams(top_k=4, top_p=0.5), 200).tolist()) == {20, 30}


def test_a_masked_token_is_never_drawn():
    logits = torch.full((1000,), -math.inf)
    logits[[7, 300, 999]] = torch.tensor([0.0, 1.0, 0.5])
    for name, options in CASES.items():
        assert set(draws(logits, SamplingParams(**options), 300).tolist()) <= {7, 300, 999}, name


def test_trying_the_most_likely_first_draws_the_same_as_sorting_all(monkeypatch):
    params = [SamplingParams(top_p=top_p, temperature=temperature) for top_p in (0.3, 0.9) for temperature in (0.4, 2)]
    logits = logits_like(4, 6000, seed=2)
    found = []
    for first_try in (1, 64, 6000):
        monkeypatch.setattr(choice, "_FIRST_TRY", first_try)
        found.append(choose(logits.clone(), sampled_rows(6000, params)))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_draw_depends_on_seed_sample_and_position_only():
    logits = logits_like(1, 800)[0]
    plain = SamplingParams(temperature=5)

    def drawn(**options):
        rows = sampled_rows(800, [plain] * 8, **options)
        return choose(logits.expand(8, -1).contiguous(), rows).tolist()

    base = drawn(seeds=[1] * 8)
    assert len(set(base)) == 1
    assert len(set(drawn(seeds=list(range(8))))) > 4
    assert len(set(drawn(seeds=[1] * 8, samples=list(range(8))))) > 4
    assert len(set(drawn(seeds=[1] * 8, histories=[[0] * (length + 1) for length in range(8)]))) > 4
    assert drawn(seeds=[1] * 8, slots=[9, 3, 4, 5, 6, 7, 8, 2]) == base


# A value of its own in every column of the table, and an entry in each of its dictionaries.
EVERYTHING = SamplingParams(
    temperature=0.5, top_p=0.5, top_k=9, min_p=0.1, presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=2.0,
    suppress_repetition_in_generation=True, no_repeat_ngram_size=3, min_tokens=4, eos_token_id=[2], logprobs=1,
    bad_words_ids=[[4, 5]], logit_bias={3: 7.5}, prompt_logprobs=2, early_stop=EarlyStop(),
    logits_processors_args={"any": 1},
)  # fmt: skip


@for_each("source", [0, 1])
def test_a_fork_has_all_parameters_of_its_source_and_none_that_its_slot_had(source):
    def table_of(*params: SamplingParams) -> ParameterTable:
        processors = LogitsProcessors({"any": lambda size, given: given and sum})
        table = ParameterTable(2, VOCABULARY, forms.form.device, processors)
        for slot, each in enumerate(params):
            table.enter(slot, each, num_prompt=1, seed=each.logprobs or 0, sample=7 + slot)
        return table

    def line(table: ParameterTable, slot: int) -> dict[str, Any]:
        columns = {name: each for name, each in vars(table).items() if isinstance(each, (numpy.ndarray, torch.Tensor))}
        rare = {name: each.get(slot) for name, each in vars(table.rare).items()}
        return {name: numpy.asarray(each[slot]) for name, each in columns.items()} | rare

    params = SamplingParams(), EVERYTHING
    table, target = table_of(*params), 1 - source
    alike = [name for name, one in line(table, 0).items() if repr(one) == repr(line(table, 1)[name])]
    assert not alike, "columns that show no copy"
    table.copy(source, target, sample=7 + target)
    numpy.testing.assert_equal(line(table, target), line(table_of(*[params[source]] * 2), target))


def test_uniform_numbers_are_uniform_and_independent():
    count = 20_000
    seed, ones = torch.full((count,), 11), torch.ones(count, dtype=torch.int64)
    by_position = uniform(seed, ones, torch.arange(count))
    by_seed = uniform(torch.arange(count), ones, ones)
    for numbers in (by_position, by_seed, uniform(seed, torch.arange(count), ones)):
        assert numbers.min() >= 0 and numbers.max() < 1
        expected = count / 50
        statistic = ((torch.histc(numbers, 50, 0, 1) - expected) ** 2 / expected).sum().item()
        assert statistic < 49 + 4 * math.sqrt(98)
    assert abs(torch.corrcoef(torch.stack([by_position, by_seed]))[0, 1].item()) < 0.03
    assert abs(torch.corrcoef(torch.stack([by_position[1:], by_position[:-1]]))[0, 1].item()) < 0.03
    assert not torch.equal(by_position, uniform(seed, ones, torch.arange(count), draw=1))


@for_each("broken", [math.nan, math.inf, -math.inf])
def test_a_row_of_broken_logits_is_marked_and_harms_no_other(broken):
    params = [SamplingParams(**options) for options in CASES.values()]
    logits = logits_like(len(params), 6000)
    right = sample(logits.clone(), sampled_rows(6000, params))
    for row in range(len(params)):
        wrong = logits.clone()
        wrong[row, 77] = broken
        found = sample(wrong, sampled_rows(6000, params))
        assert found.faults.tolist() == [int(other == row) for other in range(len(params))]
        assert found.token_ids[row] == 0
        others = [other for other in range(len(params)) if other != row]
        assert torch.equal(found.token_ids[others], right.token_ids[others])
    banned = [SamplingParams(temperature=0), SamplingParams(bad_words_ids=[[token] for token in range(50)])]
    assert sample(logits_like(2, 50), sampled_rows(50, banned)).faults.tolist() == [0, 2]
