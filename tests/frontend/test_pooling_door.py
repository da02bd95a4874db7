"""What becomes of a text before a model that gives numbers gets it, and of its vectors afterwards."""

import numpy
import pytest
from builders.cases import for_each

from penstock import PoolingParams
from penstock.frontend.models.pooled_model import PooledModel
from penstock.frontend.pooling.call_checks import checked_for_one
from penstock.frontend.pooling.door import PoolingDoor
from penstock.frontend.requests.prompts import ParsedPrompt
from penstock.protocol.errors import LimitError, RequestError
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.pooling.form import PoolingForm, Vectors

PLAN = MemoryPlan("cpu", "", 0, 0, 0, [], 64, 64, 100, "float32", "fp32", vector_width=4)
ROW = numpy.array([[3.0, 0.0, 4.0, 12.0]], numpy.float32)


def door(**said) -> PoolingDoor:
    return PoolingDoor(PooledModel(PoolingForm(["mean"]), said.pop("task", "embed"), **said), PLAN)


def finished(given: PoolingDoor, **params) -> list[float]:
    return given.finished(Vectors(0, 4, ROW.tobytes()), PoolingParams(**params)).astype(float).round(4).tolist()


@for_each(
    "said, params, expected",
    [
        ({}, {}, [3.0, 0.0, 4.0, 12.0]),
        ({"normalizes": True}, {}, [0.2308, 0.0, 0.3077, 0.9231]),
        ({}, {"normalize": True}, [0.2308, 0.0, 0.3077, 0.9231]),
        ({"normalizes": True}, {"normalize": False}, [3.0, 0.0, 4.0, 12.0]),
        ({"normalizes": True}, {"dimensions": 3}, [0.6, 0.0, 0.8]),
        ({}, {"dimensions": 3}, [3.0, 0.0, 4.0]),
        ({"cut": 3}, {}, [3.0, 0.0, 4.0]),
        ({"cut": 3, "normalizes": True}, {}, [0.2308, 0.0, 0.3077]),
        ({"cut": 3, "normalizes": True}, {"normalize": True}, [0.6, 0.0, 0.8]),
        ({"cut": 1, "normalizes": True}, {"dimensions": 3}, [0.6, 0.0, 0.8]),
        ({"task": "classify", "activation": "softmax"}, {}, [0.0001, 0.0, 0.0003, 0.9995]),
        ({"task": "classify", "activation": "sigmoid"}, {}, [0.9526, 0.5, 0.982, 1.0]),
        ({"task": "classify"}, {}, [3.0, 0.0, 4.0, 12.0]),
        ({"task": "classify", "activation": "softmax"}, {"use_activation": False}, [3.0, 0.0, 4.0, 12.0]),
        ({}, {"by_token": True}, [[3.0, 0.0, 4.0, 12.0]]),
    ],
)
def test_vectors_become_what_the_model_says_or_the_request(said, params, expected):
    assert finished(door(**said), **params) == expected


PROMPTS = {"query": "query: ", "passage": "passage: "}


@for_each(
    "said, params, expected",
    [
        ({}, {}, "a text"),
        ({"prompts": PROMPTS}, {}, "a text"),
        ({"prompts": PROMPTS, "default_prompt": "passage"}, {}, "passage: a text"),
        ({"prompts": PROMPTS, "default_prompt": "passage"}, {"prompt_name": "query"}, "query: a text"),
        ({}, {"instruction": "Find it"}, "Instruct: Find it\nQuery:a text"),
    ],
)
def test_a_text_gets_the_words_that_belong_before_it_and_ids_get_none(said, params, expected):
    asked = ParsedPrompt("a text", None, PoolingParams().as_sampling(), pooled=PoolingParams(**params))
    assert door(**said).worded(asked).text == expected
    ids = ParsedPrompt(None, [1, 2], PoolingParams().as_sampling(), pooled=PoolingParams(**params))
    assert door(**said).worded(ids) == ids


def test_a_prompt_that_the_model_hasnt_is_refused_with_those_that_it_has():
    asked = ParsedPrompt("a", None, PoolingParams().as_sampling(), pooled=PoolingParams(prompt_name="quer"))
    assert "its own are: passage, query. Did you mean query?" in door(prompts=PROMPTS).worded(asked).refusal


@for_each(
    "form, params", [(PoolingForm(["cls"]), PoolingParams(by_token=True)), (PoolingForm(["cls"], [], True), None)]
)
def test_a_call_of_one_result_refuses_those_of_each_token(form, params):
    with pytest.raises(RequestError, match="classify gives one result for each text.*encode, or /pooling"):
        checked_for_one("classify", PooledModel(form, "classify", labels=("a", "b")), params)


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut():
    ids = list(range(70))
    with pytest.raises(LimitError, match="70 tokens, and the model takes 64"):
        door().fitting(ids, PoolingParams())
    with pytest.raises(LimitError, match="the model takes 32"):
        door(longest=32).fitting(ids, PoolingParams())
    assert door().fitting(ids, PoolingParams(truncate_prompt_tokens=-1)) == ids[:64]
    assert door().fitting(ids, PoolingParams(truncate_prompt_tokens=5)) == ids[:5]
    assert door().fitting(ids[:3], PoolingParams(truncate_prompt_tokens=5)) == ids[:3]
    with pytest.raises(RequestError, match="dimensions=5, and the model's vectors have 4 numbers"):
        door().fitting(ids[:3], PoolingParams(dimensions=5))
