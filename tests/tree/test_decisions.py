"""Decisions by a model that writes text: what its probabilities are, and what many questions about one text cost."""

import math

import pytest

from penstock import PoolingParams, SamplingParams
from penstock.frontend.pooling.decide import Decider
from penstock.frontend.pooling.decisions import parsed_questions
from penstock.protocol.errors import RequestError

STATE = "What is 2 + 2? " * 12
QUESTIONS = [
    {"type": "predicate", "instructions": "The sum is four.", "name": "sum"},
    {"type": "choice", "instructions": "Which one is it?", "choices": ["four", {"value": True, "description": "yes"}]},
    {"type": "score", "instructions": "How large is it?", "levels": 5},
    {"type": "choice", "instructions": "Which number?", "choices": [str(number) for number in range(27)]},
]


def test_probabilities_of_labels_are_those_of_their_tokens_as_a_prompt(llm):
    [decision] = llm.decide("2 + 2", QUESTIONS)
    plan = Decider(llm._session).plan("2 + 2", parsed_questions(QUESTIONS))
    prompts = list(plan.prompts)
    start = 0
    for answer, tree in zip(decision.answers, plan.trees, strict=True):
        prompt = prompts[start]
        start += len(tree.nodes)
        whole = [[*prompt, *spelled] for label in tree.spellings for spelled in label]
        found = iter(llm.generate(whole, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False))
        masses = [
            sum(math.exp(_joint(next(found).prompt_logprobs, len(spelled))) for spelled in label)
            for label in tree.spellings
        ]
        mass = sum(masses)
        assert abs(answer.label_mass / mass - 1) < 1e-9
        given = [each.probability for each in getattr(answer, "probabilities", ())] or [answer.probability]
        for mine, wanted in zip(given, masses):
            assert abs(mine - wanted / mass) < 1e-12
    assert decision.answers[0].name == "sum"
    [marked] = llm.decide("PENSTOCK-QUESTION", QUESTIONS[:1])
    assert marked.error_code == 200
    assert abs(decision.answers[2].score - sum(k * p for k, p in enumerate(given_of(decision.answers[2])))) < 1e-12


def given_of(answer):
    return [each.probability for each in answer.probabilities]


def _joint(logprobs, length):
    """Of the last tokens of a prompt together."""
    return sum(next(iter(by_token.values())).logprob for by_token in logprobs[-length:])


def test_two_hundred_questions_find_the_blocks_of_their_text(llm):
    questions = [{"type": "predicate", "instructions": f"It is {number}."} for number in range(200)]
    decider = Decider(llm._session)
    before = len(llm.get_tokenizer().encode(decider._rendered(STATE)[0], add_special_tokens=False))
    [decision] = llm.decide(STATE, questions)
    block_size = llm._session.tree_config.block_size
    assert decision.num_cached_tokens >= 199 * (before // block_size) * block_size
    assert len({answer.probability for answer in decision.answers}) > 100


def test_what_is_wrong_with_a_question_is_said_before_anything_is_computed(llm):
    for question, words in [
        ({"type": "guess", "instructions": "a"}, "type must be one of predicate, choice, score"),
        ({"type": "choice", "instructions": "a", "choices": ["b"]}, "choices must be a list of 2 to 255"),
        ({"type": "choice", "instructions": "a", "choices": ["b", "b"]}, "must be another one"),
        ({"type": "score", "instructions": "a", "levels": 11}, "levels must be a list of 2 to 10"),
        ({"type": "predicate", "instructions": " "}, "instructions must be a text"),
        ({"type": "predicate", "instructions": "a", "levels": 2}, "a predicate has no levels"),
    ]:
        with pytest.raises(RequestError, match=words):
            llm.decide("a", [question])
    for content in (None, 5, {}):
        with pytest.raises(RequestError, match="content"):
            llm.decide([{"role": "user", "content": content}], QUESTIONS[:1])
    [refused] = llm.encode("a", PoolingParams(logprob_token_ids=[10**6]), use_tqdm=False)
    assert refused.error_code == 400 and "is not in the vocabulary" in refused.error_msg
