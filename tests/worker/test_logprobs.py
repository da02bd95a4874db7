"""Log-probabilities: those of rows against their definition in float64, and those of a prompt against the same text
when it was generated, whatever computes it.
"""

import numpy
import torch
from builders.backends import BACKENDS, INVARIANT_BACKENDS, load_on
from builders.cases import for_each
from builders.runner_harness import Answer, engine_of, prompt
from builders.sampled_rows import Form, logits_like
from builders.tiny_model import tiny_model

from penstock.worker.start.model import Model
from penstock.worker.steps.logprobs import LogprobOperations, logprobs_of_prompt

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
