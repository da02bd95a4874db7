"""Receipts of numbers through a daemon: honest bodies and outputs are proved, and whatever is changed is found."""

import dataclasses
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
from builders.daemon import RunningDaemon
from builders.daemon_numbers import LONG, QUESTIONS, TEXTS, said
from msgspec.structs import replace

from penstock import PoolingParams
from penstock.frontend.receipts.numbers import NumbersReceipt
from penstock.frontend.receipts.written import packed_ids

ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("/v1/embeddings", "vectors", {"input": TEXTS}),
    ("/v1/embeddings", "vectors", {"input": LONG, "encoding_format": "base64", "dimensions": 8, "prompt_name": "long",
                                   "truncate_prompt_tokens": 9, "truncation_side": "left"}),
    ("/pooling", "vectors", {"input": [TEXTS[0], [5, 6, 7]], "by_token": True}),
    ("/v2/embed", "vectors", {"texts": [*TEXTS, LONG], "input_type": "search_query",
                              "embedding_types": ["float", "base64", "binary"]}),
    ("/v1/rerank", "vectors", {"query": TEXTS[0], "documents": TEXTS, "top_n": 2, "return_documents": True}),
    ("/v1/score", "vectors", {"text_1": TEXTS, "text_2": TEXTS[::-1]}),
    ("/v1/rerank", "ranks", {"query": TEXTS[0], "documents": [*TEXTS, LONG], "max_tokens_per_doc": 20,
                             "return_documents": True}),
    ("/v1/score", "ranks", {"text_1": TEXTS[0], "text_2": TEXTS}),
    ("/v1/decisions", "pocket", {"input": "What is 2 + 2?", "questions": QUESTIONS[:3]}),
    ("/v1/classify", "kinds", {"input": TEXTS, "use_activation": False}),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all numbers and labels of a body that say something about the answer."""
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        skipped = ("id", "model", "created", "receipt", "notice", "texts", "text", "object", "response_type",
                   "prompt_tokens_details", "input_tokens_details", "output_tokens_details")  # fmt: skip
        for name, each in pairs:
            if name not in skipped:
                yield from places(each, (*path, name))
    elif value is not None:
        yield path


def changed(body: dict[str, Any], path: tuple[Any, ...], draw: random.Random) -> str:
    """The body as JSON, with one digit or letter at this place changed."""
    mark = "CHANGED"
    copy = json.loads(json.dumps(body))
    part = copy
    for name in path[:-1]:
        part = part[name]
    text = json.dumps(part[path[-1]])
    part[path[-1]] = mark
    spots = [place for place, character in enumerate(text) if character.isalnum()]
    spot = draw.choice([place for place in spots if text[place].isdigit()] or spots)
    other = draw.choice(("123456789" if text[spot].isdigit() else "abcXYZ").replace(text[spot], ""))
    return json.dumps(copy).replace(f'"{mark}"', text[:spot] + other + text[spot + 1 :])


def rearranged(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The body with two of its entries exchanged, and with another text than the one that was computed."""
    key = "data" if "data" in body else "results"
    first, *rest = body.get(key) or [{}]
    if rest:
        yield body | {key: [rest[0], first, *rest[1:]]}
    if "texts" in body:
        yield body | {"texts": [TEXTS[1], *body["texts"][1:]]}
    if "document" in first:
        # Not the query: where a tokenizer doesn't mark the second text, it isn't told from a document.
        other = {"text": next(text for text in TEXTS[1:] if text != first["document"]["text"])}
        yield body | {"results": [first | {"document": other}, *rest]}


def receipted(http: httpx.Client, path: str, model: str, given: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = said(http.post(path, json={"model": model, "receipt": True} | given))
    assert body["receipt"].startswith("pn1_")
    return body


def test_numbers_are_proved_by_their_receipts_and_any_change_is_found(numbers_daemon: RunningDaemon, http, tmp_path):
    draw = random.Random(5)
    with ExitStack() as stack:
        for name in ("vectors", "ranks", "kinds", "pocket"):
            llm = stack.enter_context(numbers_daemon.attach(name))
            bodies = [receipted(http, path, model, given) for path, model, given in ASKED if model == name]
            honest = [json.dumps(body) for body in bodies]
            planted = [changed(body, draw.choice(list(places(body))), draw) for body in bodies for _ in range(12)]
            planted += [json.dumps(other) for body in bodies for other in rearranged(body)]
            (tmp_path / name).write_text("\n".join([*honest, *planted]))
            found = llm.verify(tmp_path / name)
            assert [each.sentence for each in found[: len(honest)]] == ["proved"] * len(honest)
            missed = [line for line, each in zip(planted, found[len(honest) :], strict=True)
                      if each.status != "differs"]  # fmt: skip
            assert not missed


def test_outputs_and_decisions_are_proved_and_say_how_far_they_are(numbers_daemon: RunningDaemon, vectors):
    outputs: list[Any] = vectors.embed(TEXTS, PoolingParams(receipt=True, dimensions=8), use_tqdm=False)
    outputs += vectors.score(TEXTS[0], TEXTS, PoolingParams(receipt=True), use_tqdm=False)
    outputs += vectors.encode(TEXTS, PoolingParams(receipt=True, by_token=True, normalize=False), use_tqdm=False)
    assert {each.sentence for each in vectors.verify(outputs)} == {"proved"}
    outputs[1].outputs.embedding[3] += 1e-9
    found = vectors.verify(outputs[:2])
    assert found[0].status == "proved" and found[1].reason == "outputs.embedding[3]" and found[1].cosine > 0.999
    with numbers_daemon.attach("pocket") as llm:
        decisions = llm.decide(["What is 2 + 2?", "a"], QUESTIONS[:3], receipt=True)
        decisions[1].answers[0].probability += 1e-12
        assert [each.status for each in llm.verify(decisions)] == ["proved", "differs"]
        # Of other models nothing is said.
        assert [each.status for each in llm.verify(outputs[:1])] == ["not judged"]


def test_a_receipt_of_other_numbers_prompts_or_models_proves_nothing(vectors):
    [output] = vectors.embed(TEXTS[:1], PoolingParams(receipt=True), use_tqdm=False)
    receipt = NumbersReceipt.read(output.receipt)
    [prompt] = receipt.prompts
    other = packed_ids([*prompt.ids[:-1], prompt.ids[-1] ^ 1])
    weights = {**receipt.facts, "weights": "0" * 64}
    forged = {
        "differs": [
            replace(receipt, params=[{"normalize": False}]),
            replace(receipt, params=[{"dimensions": 63}]),
            replace(receipt, prompts=[replace(prompt, token_ids=other)]),
            replace(receipt, prompts=[replace(prompt, digest=bytes(16))]),
            replace(receipt, prompts=[prompt, prompt]),
        ],
        "not judged": [
            replace(receipt, facts=weights),
            replace(receipt, facts={**receipt.facts, "kernels": "avx9"}),
            replace(receipt, adapter="0" * 64),
            replace(receipt, params=[{"dimensions": 65}]),
            replace(receipt, params=[{"dimension": 5}]),
            replace(receipt, prompts=[replace(prompt, params=1)]),
        ],
    }
    for status, receipts in forged.items():
        copies = [dataclasses.replace(output, receipt=each.text()) for each in receipts]
        assert [each.status for each in vectors.verify(copies)] == [status] * len(copies), status
