"""The forms of bodies with numbers: what must stand in each, of the numbers that were computed.

A body shows itself which form it has, and whether a vector is a list or base64. The order of a ranking, and which
prompts make a score or an answer, come from the receipt's view.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy

from ..http.endpoints.numbers.cohere import converted
from ..http.endpoints.numbers.decisions import as_given
from ..models.pooled_model import PooledModel
from ..pooling.decide import LabelTree, answers_of
from ..pooling.decisions import Option, Question
from ..pooling.door import activated
from ..pooling.scores import SIMILARITIES, further_activation
from ..receipts.numbers import NumbersReceipt


@dataclass(frozen=True)
class Computed:
    """What was computed of a receipt's prompts."""

    receipt: NumbersReceipt
    arrays: Sequence[numpy.ndarray]
    model: PooledModel | None

    @cached_property
    def scores(self) -> list[float]:
        if pairs := self.receipt.view.pairs:
            similarity = SIMILARITIES["cosine" if self.model is None else self.model.similarity]
            return [similarity(self.arrays[first], self.arrays[second]) for first, second in pairs]
        if self.model is None:
            return [float(array[0]) for array in self.arrays]
        params = [self.receipt.params[prompt.params] for prompt in self.receipt.prompts]
        further = [further_activation(self.model, each.get("use_activation")) for each in params]
        return [float(activated(array, name)[0]) for array, name in zip(self.arrays, further, strict=True)]

    @cached_property
    def num_tokens(self) -> int:
        return sum(len(prompt.token_ids) // 4 for prompt in self.receipt.prompts)

    @property
    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": self.num_tokens, "total_tokens": self.num_tokens}

    def label(self, probs: numpy.ndarray) -> str | None:
        labels = self.labels(probs)
        return labels[int(probs.argmax())] if labels else None

    def labels(self, probs: numpy.ndarray) -> list[str]:
        labels = () if self.model is None else self.model.labels
        return list(labels) if len(labels) == len(probs) else []


class Form(NamedTuple):
    fits: Callable[[Mapping[str, Any]], bool]
    # What the body must have, by its own form; and where vectors stand in it.
    expected: Callable[[Mapping[str, Any], Computed], dict[str, Any]]
    vectors: Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]] = lambda body: iter(())
    # Places of texts that it repeats, the numbers of their prompts, and the texts.
    texts: Callable[[Mapping[str, Any], NumbersReceipt], Iterator[tuple[str, int, Any]]] = lambda body, receipt: iter(
        ()
    )


def _like(found: Any, array: numpy.ndarray) -> Any:
    return converted(array, "base64" if isinstance(found, str) else "float")


def _entries(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = body["data"]
    return entries


def _listed(field: str, kind: str) -> Form:
    """vLLM's and OpenAI's lists of vectors."""

    def expected(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
        found = [each.get(field) for each in _entries(body)]
        found += [None] * (len(computed.arrays) - len(found))
        data = [
            {"index": index, "object": kind, field: _like(vector, array)}
            for index, (vector, array) in enumerate(zip(found, computed.arrays))
        ]
        return {"data": data, "usage": computed.usage}

    return Form(
        lambda body: _is_list_of(body, field),
        expected,
        lambda body: ((f"data[{place}].{field}", each.get(field)) for place, each in enumerate(_entries(body))),
    )


def _is_list_of(body: Mapping[str, Any], field: str) -> bool:
    data = body.get("data")
    return body.get("object") == "list" and isinstance(data, list) and bool(data) and all(
        isinstance(each, dict) and field in each for each in data
    )  # fmt: skip


def _classes(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    data = [
        {"index": index, "label": computed.label(array), "probs": array.tolist(), "num_classes": len(array)}
        for index, array in enumerate(computed.arrays)
    ]
    named = {"labels": computed.labels(computed.arrays[0])} if "labels" in body else {}  # older ones have none
    return {"data": data, **named, "usage": computed.usage}


def _scores(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(computed.scores)]
    return {"data": data, "usage": computed.usage}


def _ranking(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    scores, tokens = computed.scores, computed.num_tokens
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    results: list[dict[str, Any]] = [
        {"index": place, "relevance_score": scores[place]}
        for place in order[: computed.receipt.view.most_results or None]
    ]
    for result, found in zip(results, body["results"]):
        if "document" in found:  # compared with the prompt
            result["document"] = {"text": found["document"]["text"]}
    billed = {"input_tokens": tokens, "search_units": 1}
    meta = {"api_version": {"version": "2"}, "billed_units": billed, "tokens": {"input_tokens": tokens}}
    return {"results": results, "usage": computed.usage, "meta": meta}


def _ranked_texts(body: Mapping[str, Any], receipt: NumbersReceipt) -> Iterator[tuple[str, int, Any]]:
    pairs = receipt.view.pairs
    for place, result in enumerate(body["results"]):
        if "document" in result:
            number = pairs[result["index"]][1] if pairs else result["index"]
            yield f"results[{place}].document", number, result["document"]["text"]


def _cohere(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    vectors = {kind: [converted(array, kind) for array in computed.arrays] for kind in body["embeddings"]}
    if len(body["texts"]) != len(computed.arrays):
        raise ValueError
    billed = {"input_tokens": computed.num_tokens}
    return {"embeddings": vectors, "meta": {"api_version": {"version": "2"}, "billed_units": billed}}


def _cohere_vectors(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for kind in ("float", "base64"):
        if isinstance(vectors := body["embeddings"].get(kind), list):
            return ((f"embeddings.{kind}[{place}]", vector) for place, vector in enumerate(vectors))
    return iter(())


def _answers(computed: Computed) -> list[Any]:
    questions = []
    for each in computed.receipt.view.questions:
        options = tuple(Option("", option.value, option.words) for option in each.options)
        tree = LabelTree([[tuple(spelled) for spelled in option.spellings] for option in each.options])
        questions.append((Question(each.type, each.name, each.words, options), tree))
    rows = iter(computed.arrays)
    answers = answers_of(questions, (array.tolist() for array in rows))
    if next(rows, None) is not None or not answers:
        raise ValueError
    return answers


def _decisions(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    usage = {**body["usage"], "input_tokens": computed.num_tokens, "output_tokens": 0,
             "total_tokens": computed.num_tokens}  # fmt: skip
    return {"answers": [as_given(answer) for answer in _answers(computed)], "usage": usage}


def _decision_output(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    answers = [answer.to_dict() for answer in _answers(computed)]
    return {"answers": answers, "num_prompt_tokens": computed.num_tokens, "error_code": 200, "error_msg": None}


def _output(body: Mapping[str, Any], computed: Computed) -> dict[str, Any]:
    """A `PoolingRequestOutput` as a dict."""
    outputs: dict[str, Any]
    array = computed.arrays[0]
    if "score" in body["outputs"]:
        [score] = computed.scores
        outputs = {"score": score}
    elif "probs" in body["outputs"]:
        outputs = {"probs": array.tolist(), "label": computed.label(array), "labels": computed.labels(array)}
    else:
        [name] = [name for name in ("embedding", "data") if name in body["outputs"]]
        outputs = {name: array.tolist()}
    ids = [token for prompt in computed.receipt.prompts for token in prompt.ids]
    return {"outputs": outputs, "prompt_token_ids": ids, "finished": True, "error_code": 200, "error_msg": None}


def _output_vector(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((f"outputs.{name}", body["outputs"][name]) for name in ("embedding", "data") if name in body["outputs"])


FORMS = (
    _listed("embedding", "embedding"),
    _listed("data", "pooling"),
    Form(lambda body: _is_list_of(body, "probs"), _classes),
    Form(lambda body: _is_list_of(body, "score"), _scores),
    Form(lambda body: isinstance(body.get("results"), list), _ranking, texts=_ranked_texts),
    Form(
        lambda body: isinstance(body.get("embeddings"), dict) and isinstance(body.get("texts"), list),
        _cohere,
        _cohere_vectors,
        lambda body, receipt: ((f"texts[{place}]", place, text) for place, text in enumerate(body["texts"])),
    ),
    Form(lambda body: isinstance(body.get("answers"), list) and isinstance(body.get("usage"), dict), _decisions),
    Form(lambda body: isinstance(body.get("answers"), list) and "num_prompt_tokens" in body, _decision_output),
    Form(lambda body: isinstance(body.get("outputs"), dict), _output, _output_vector),
)
