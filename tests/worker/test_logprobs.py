"""Log-probabilities: those of rows against their definition in float64, and those of a prompt against the same text
when it was generated, whatever computes it.
"""

from typing import Any

import numpy
import torch
from builders.backends import BACKENDS, INVARIANT_BACKENDS, load_on
from builders.cases import for_each
from builders.runner_harness import Answer, engine_of, prompt
from builders.sampled_rows import Form, logits_like, sample, sampled_rows
from builders.tiny_model import tiny_model

from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import Mask
from penstock.worker.sampler.processed import process
from penstock.worker.start.model import Model
from penstock.worker.steps.logprobs import LogprobOperations, Reported, logprobs_of_prompt

VOCABULARY = 5003


def operations(form: Form) -> LogprobOperations:
    return LogprobOperations(form.ops, form.device)


def expected(logits: torch.Tensor) -> numpy.ndarray:
    values = logits.double().numpy()
    shifted = values - values.max(-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(-1, keepdims=True))


@for_each("num_top", [0, 20, VOCABULARY])
@for_each("ties", [False, True])
def test_the_chosen_token_comes_first_and_then_the_most_likely(sampling_form, num_top, ties):
    logits = logits_like(4, VOCABULARY, ties=ties)
    chosen = torch.tensor([0, 17, int(logits[2].argmax()), VOCABULARY - 1])
    found = operations(sampling_form).of_tokens(*map(sampling_form.given, (logits, chosen)), num_top)
    wanted = expected(logits)
    for row, order in enumerate(torch.sort(logits, descending=True, stable=True).indices.tolist()):
        assert found.token_ids[row].tolist() == [chosen[row].item(), *order[:num_top]]
        assert found.ranks[row] == order.index(chosen[row].item()) + 1
        numpy.testing.assert_allclose(found.logprobs[row], wanted[row, found.token_ids[row]], atol=2e-6)


def test_each_row_gets_a_part_with_what_its_owner_asked_for(sampling_form):
    logits, chosen = map(sampling_form.given, (logits_like(3, 50), torch.tensor([1, 2, 3])))
    of_rows = operations(sampling_form).of_rows
    owners, num_top = numpy.array([7, 2, 9]), numpy.array([4, 10, 4])
    parts = {part.owner: part for part in of_rows(logits, chosen, owners, num_top)()}
    widths = {owner: (part.is_prompt, part.width) for owner, part in parts.items()}
    assert widths == {7: (False, 5), 2: (False, 11), 9: (False, 5)}
    assert len(parts[7].token_ids) == len(parts[7].logprobs) == 20 and len(parts[7].ranks) == 4
    (alone,) = of_rows(logits[2:], chosen[2:], owners[2:], num_top[2:])()
    assert parts[9] == alone


def test_pieces_of_a_prompt_join_to_the_whole(sampling_form):
    logits, chosen = map(sampling_form.given, (logits_like(5, 300), torch.arange(5)))
    of_tokens = operations(sampling_form).of_tokens
    pieces = [of_tokens(logits[start:end], chosen[start:end], 3) for start, end in ((0, 2), (2, 3), (3, 5))]
    assert logprobs_of_prompt(0, pieces)() == logprobs_of_prompt(0, [of_tokens(logits, chosen, 3)])()


DRAWS = [
    SamplingParams(temperature=0.7, top_k=5), SamplingParams(temperature=1.5, top_p=0.6),
    SamplingParams(temperature=0.9, min_p=0.2), SamplingParams(top_k=9, top_p=0.7, min_p=0.05, logit_bias={3: 4}),
    SamplingParams(temperature=2.0), SamplingParams(temperature=0, bad_words_ids=[[1]]),
]  # fmt: skip


def drawn_from(row: numpy.ndarray, params: SamplingParams) -> numpy.ndarray:
    """A row's logits divided by the temperature, -infinity where the rules of `worker/sampler` keep no token."""
    scaled = row if params.temperature == 0 else row / params.temperature
    order = numpy.argsort(-row, kind="stable")
    order = order[: params.top_k if params.top_k and params.temperature else len(order)]
    weights = numpy.exp(scaled[order] - scaled.max())
    is_kept = weights >= (params.min_p if params.temperature else 0)
    if params.top_p < 1:
        is_kept &= numpy.concatenate(([0], weights.cumsum()[:-1])) < params.top_p * weights.sum()
    found = numpy.full(len(row), -numpy.inf)
    found[order[is_kept]] = scaled[order[is_kept]]
    return found


def test_processed_logits_are_those_that_a_token_is_drawn_from(sampling_form):
    size = 300
    logits = logits_like(len(DRAWS), size)
    adjusted = logits.double().numpy()
    adjusted[3, 3] += 4
    adjusted[5, 1] = adjusted[0, 7] = -numpy.inf
    bits = numpy.full((1, (size + 31) // 32), -1, numpy.int32)
    bits[0, 0] &= ~(1 << 7)  # no token 7
    mask = Mask(numpy.array([0]), bits)
    best = torch.from_numpy(adjusted).argmax(-1)

    def processed(logits: torch.Tensor, draws: list[SamplingParams], mask: Mask | None, chosen: torch.Tensor) -> Any:
        own = sampling_form.given(logits.clone())
        process(sampling_form.ops, own, sampled_rows(size, draws), mask, sampling_form.given(chosen))
        return numpy.asarray(own)

    found = processed(logits, DRAWS, mask, best)
    for row, params in enumerate(DRAWS):
        numpy.testing.assert_allclose(found[row], drawn_from(adjusted[row], params), rtol=1e-5, atol=1e-5)
        own = slice(row, row + 1)
        alone = processed(logits[own], [params], mask if row == 0 else None, best[own])
        numpy.testing.assert_array_equal(found[row], alone[0])
    for seed in range(40):
        token_ids = sample(logits.clone(), sampled_rows(size, DRAWS, seeds=[seed] * len(DRAWS)), mask).token_ids
        assert numpy.isfinite(found[numpy.arange(len(DRAWS)), token_ids.numpy()]).all()


def test_a_request_may_be_told_logits_instead(sampling_form):
    logits, chosen = logits_like(3, 50), torch.tensor([1, 2, 3])
    plain, told = (
        LogprobOperations(sampling_form.ops, sampling_form.device, Reported(are_logits=are_logits))
        for are_logits in (False, True)
    )
    given = tuple(map(sampling_form.given, (logits, chosen)))
    right, found = plain.told(*given, 4), told.told(*given, 4)
    numpy.testing.assert_array_equal(found.token_ids, right.token_ids)
    numpy.testing.assert_array_equal(found.ranks, right.ranks)
    wanted = numpy.take_along_axis(logits.numpy(), numpy.asarray(right.token_ids, numpy.int64), 1)
    numpy.testing.assert_array_equal(found.logprobs, wanted)


def answer(model: Model, token_ids: list[int], *, budget: int = 512, **params) -> Answer:
    [found] = engine_of(model, max_num_batched_tokens=budget).run(prompt(1, token_ids, **params))
    return found


def unpacked(positions: list[tuple[bytes, bytes, bytes]]) -> list[numpy.ndarray]:
    """Token ids and log-probabilities, a row a position."""
    columns = zip(*positions, strict=True)
    kinds = (numpy.int32, numpy.float32)  # and ranks behind them
    return [numpy.frombuffer(b"".join(own), kind).reshape(len(positions), -1) for kind, own in zip(kinds, columns)]


@for_each("backend", BACKENDS)
def test_those_of_a_prompt_are_those_of_the_text_when_it_was_generated(tmp_path, backend):
    model = load_on(backend, tiny_model(tmp_path, "qwen3", dtype="bfloat16"))
    given = [(11 * place) % 290 + 5 for place in range(21)]
    sampled = {"temperature": 1.3, "top_k": 40, "repetition_penalty": 1.2, "logit_bias": {7: 3.0}}
    for top in (0, 4, -1):
        generated = answer(model, given, max_tokens=10, seed=3, logprobs=top, **sampled)
        text = given + generated.tokens
        for budget in (512, 16):
            read = answer(model, text, budget=budget, max_tokens=1, prompt_logprobs=top).prompt_logprobs
            assert len(read) == len(text) - 1
            again = read[len(given) - 1 :]
            if backend in INVARIANT_BACKENDS:
                assert again == generated.logprobs, (top, budget)
                continue
            # Whole chunks and lone rows are summed in different orders.
            (right_ids, right), (ids, logprobs) = unpacked(generated.logprobs), unpacked(again)
            numpy.testing.assert_array_equal(ids[:, 0], right_ids[:, 0])
            numpy.testing.assert_allclose(numpy.sort(logprobs[:, 1:]), numpy.sort(right[:, 1:]), atol=2e-2)
            numpy.testing.assert_allclose(logprobs[:, 0], right[:, 0], atol=2e-2)
