"""Vectors, scores and classes over HTTP, as other servers' clients ask for them."""

import base64
import re
from contextlib import ExitStack
from typing import Any

import httpx
import numpy
import pytest
from builders.cases import for_each
from builders.daemon_numbers import LONG, QUESTIONS, TEXTS, said
from builders.later import Later

from penstock import PoolingParams

ollama = Later("ollama")
openai = Later("openai")


def data(reply: httpx.Response, name: str) -> list[Any]:
    return [each[name] for each in said(reply)["data"]]


# --- OpenAI's and vLLM's forms ---------------------------------------------------------------------------------------


def test_vectors_over_http_are_those_of_scripts(http, vectors):
    wanted = vectors.embed(TEXTS, as_numpy=True, use_tqdm=False)
    given = {"model": "vectors", "input": TEXTS}
    reply = said(http.post("/v1/embeddings", json=given))
    assert numpy.array_equal(numpy.float32([each["embedding"] for each in reply["data"]]), wanted)
    assert [each["index"] for each in reply["data"]] == [0, 1, 2] and reply["id"].startswith("embd-")
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] > 0
    packed = data(http.post("/v1/embeddings", json=given | {"encoding_format": "base64"}), "embedding")
    assert all(base64.b64decode(each) == row.tobytes() for each, row in zip(packed, wanted, strict=True))
    ids = vectors.encode(TEXTS[:1], use_tqdm=False)[0].prompt_token_ids
    for several in (ids, [ids], [ids, TEXTS[0]]):
        found = data(http.post("/v1/embeddings", json=given | {"input": several}), "embedding")
        assert numpy.float32(found[0]).tolist() == wanted[0].tolist()
    params = {"dimensions": 8, "normalize": False, "prompt_name": "query", "truncate_prompt_tokens": 9}
    [row] = vectors.embed([LONG], PoolingParams(**params), as_numpy=True, use_tqdm=False)
    [found] = data(http.post("/v1/embeddings", json=given | {"input": LONG} | params), "embedding")
    assert found == row.tolist()
    with clients(http) as client:
        found = client.embeddings.create(model="vectors", input=TEXTS)
    assert numpy.array_equal(numpy.float32([each.embedding for each in found.data]), wanted)


def clients(http: httpx.Client) -> "openai.OpenAI":
    return openai.OpenAI(base_url=str(http.base_url).rstrip("/") + "/v1", api_key="none", max_retries=0)


def test_a_reply_says_the_same_of_cut_vectors_whatever_was_asked_before(http):
    given, cut = {"model": "vectors", "input": "a"}, {"dimensions": 7}
    first, whole, again = (http.post("/v1/embeddings", json=given | more).json() for more in (cut, {}, cut))
    assert "no file of this model says" in first["notice"] and first["notice"] == again["notice"]
    assert "notice" not in whole


def test_a_models_numbers_for_texts_and_for_their_tokens(http, vectors):
    given = {"model": "vectors", "input": TEXTS[:2]}
    rows = [each.outputs.data for each in vectors.encode(TEXTS[:2], PoolingParams(by_token=True), use_tqdm=False)]
    assert data(http.post("/pooling", json=given | {"by_token": True}), "data") == [each.tolist() for each in rows]
    packed = data(http.post("/pooling", json=given | {"task": "token_embed", "encoding_format": "base64"}), "data")
    assert [base64.b64decode(each) for each in packed] == [each.tobytes() for each in rows]
    plain = data(http.post("/pooling", json=given), "data")
    assert plain == data(http.post("/v1/embeddings", json=given), "embedding")


def test_classes_have_names_and_probabilities(http):
    whole = said(http.post("/v1/classify", json={"model": "kinds", "input": TEXTS}))
    found = whole["data"]
    assert whole["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert all(each["label"] == f"LABEL_{numpy.argmax(each['probs'])}" for each in found)
    scores = data(http.post("/v1/classify", json={"model": "kinds", "input": TEXTS, "use_activation": False}), "probs")
    powers = numpy.exp(scores)
    assert numpy.abs([each["probs"] for each in found] - powers / powers.sum(1, keepdims=True)).max() < 1e-5


# --- scores ----------------------------------------------------------------------------------------------------------


def scores(http: httpx.Client, model: str, **given: Any) -> list[float]:
    return data(http.post("/v1/score", json={"model": model} | given), "score")


def test_scores_are_cosines_of_vectors_or_those_of_a_reranker(http, vectors):
    query, documents = TEXTS[0], TEXTS[1:]
    [first] = vectors.embed([query], PoolingParams(prompt_name="query"), as_numpy=True, use_tqdm=False)
    others = vectors.embed(documents, PoolingParams(prompt_name="document"), as_numpy=True, use_tqdm=False)
    assert numpy.abs(scores(http, "vectors", text_1=query, text_2=documents) - others @ first).max() < 1e-6
    found = scores(http, "ranks", text_1=query, text_2=documents)
    assert all(0 < each < 1 for each in found)
    assert scores(http, "ranks", queries=[query, query], documents=documents) == found
    assert [scores(http, "ranks", text_1=query, text_2=each)[0] for each in documents] == found


@for_each("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
@for_each("model", ["vectors", "ranks"])
def test_documents_come_in_the_order_of_their_scores(http, path, model):
    given = {"model": model, "query": TEXTS[0], "documents": [TEXTS[1], {"text": TEXTS[2]}, TEXTS[0]]}
    reply = said(http.post(path, json=given))
    each = scores(http, model, text_1=TEXTS[0], text_2=[TEXTS[1], TEXTS[2], TEXTS[0]])
    assert {one["index"]: one["relevance_score"] for one in reply["results"]} == dict(enumerate(each))
    assert [one["relevance_score"] for one in reply["results"]] == sorted(each, reverse=True)
    assert reply["usage"]["total_tokens"] == reply["meta"]["billed_units"]["input_tokens"] > 0
    [best] = said(http.post(path, json=given | {"top_n": 1, "return_documents": True}))["results"]
    assert best == reply["results"][0] | {"document": {"text": [TEXTS[1], TEXTS[2], TEXTS[0]][best["index"]]}}


def test_a_document_is_cut_where_the_request_says_so(http):
    given = {"model": "ranks", "query": TEXTS[0], "documents": [LONG]}
    reply = http.post("/v1/rerank", json=given)
    assert reply.status_code == 400 and "truncate_prompt_tokens" in reply.json()["error"]["message"]
    for cut in ({"truncation": True}, {"truncate_prompt_tokens": -1}, *({"max_tokens_per_doc": n} for n in (20, 9999))):
        assert said(http.post("/v1/rerank", json=given | cut))["results"][0]["index"] == 0
    short = said(http.post("/v1/rerank", json=given | {"max_tokens_per_doc": 20}))
    assert short["usage"]["total_tokens"] < 64


# --- decisions -------------------------------------------------------------------------------------------------------


def test_openais_client_gets_the_decisions_of_a_script(numbers_daemon, http):
    with numbers_daemon.attach("pocket") as llm:
        [wanted] = llm.decide("What is 2 + 2?", QUESTIONS)
    content = [{"type": "input_text", "text": "What is 2 + 2?"}]
    asked = [{"role": "system", "content": "Judge."}, {"role": "user", "content": content}]
    with clients(http) as client:
        found = client.decisions.create(model="pocket", input="What is 2 + 2?", questions=QUESTIONS)
        other = client.decisions.create(model="pocket", input=asked, questions=QUESTIONS[:3])
    assert [each.label_mass for each in found.answers] == [each.label_mass for each in wanted.answers]
    predicate, choice, score = found.answers[:3]
    assert (predicate.name, predicate.probability) == ("sum", wanted.answers[0].probability)
    assert (choice.choice, choice.confidence) == (wanted.answers[1].choice, wanted.answers[1].confidence)
    assert [each.value for each in choice.probabilities] == ["a", True]
    assert [each.label for each in score.probabilities] == ["small", "large"] and score.score == wanted.answers[2].score
    assert found.usage.input_tokens == wanted.num_prompt_tokens and found.usage.input_tokens_details.cached_tokens
    assert len(other.answers) == 3 and other.answers[0].probability != predicate.probability


@for_each("given, words", [
    ({"model": "vectors"}, "questions need a model that writes text"),
    ({"questions": []}, "questions must be a list of 1 to 400"),
    ({"questions": [{"type": "guess"}]}, "type must be one of predicate, choice, score"),
    ({"input": LONG * 100}, "tokens"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, "leave pictures"),
    ({"input": [{"type": "computer_call"}]}, "is not supported"),
])  # fmt: skip
def test_a_decision_that_cannot_be_made_is_refused_with_the_reason(http, given, words):
    reply = http.post("/v1/decisions", json={"model": "pocket", "input": "a", "questions": QUESTIONS[:3]} | given)
    assert reply.status_code == 400 and words in reply.json()["error"]["message"]


# --- Cohere's and Ollama's forms -------------------------------------------------------------------------------------


def test_coheres_formats_are_of_the_same_vectors(http, vectors):
    kinds = ["float", "base64", "binary", "ubinary"]
    given = {"model": "vectors", "texts": TEXTS, "input_type": "search_query", "embedding_types": kinds}
    reply = said(http.post("/v2/embed", json=given))
    wanted = vectors.embed(TEXTS, PoolingParams(prompt_name="query"), as_numpy=True, use_tqdm=False)
    found = reply["embeddings"]
    assert numpy.array_equal(numpy.float32(found["float"]), wanted)
    assert [base64.b64decode(each) for each in found["base64"]] == [row.tobytes() for row in wanted]
    assert found["ubinary"] == numpy.packbits(wanted > 0, axis=1).tolist()
    assert (numpy.array(found["binary"]) + 128).tolist() == found["ubinary"]
    content = [{"content": [{"type": "text", "text": each}]} for each in TEXTS]
    same = http.post("/v2/embed", json={"model": "vectors", "inputs": content, "input_type": "search_query"})
    assert said(same)["embeddings"] == {"float": found["float"]}
    end, start = (
        said(http.post("/v2/embed", json={"model": "vectors", "texts": [f"three {LONG}"], "truncate": side}))
        for side in ("END", "START")
    )
    assert end["embeddings"] != start["embeddings"]
    for wrong in ({"truncate": "NONE"}, {"embedding_types": ["int8"]}, {"input_type": "qury"}):
        assert http.post("/v2/embed", json={"model": "vectors", "texts": [LONG]} | wrong).status_code == 400


def test_ollamas_client_gets_vectors(http, vectors):
    wanted = vectors.embed(TEXTS, as_numpy=True, use_tqdm=False)
    client = ollama.Client(host=str(http.base_url))
    found = client.embed(model="vectors", input=TEXTS)
    assert numpy.array_equal(numpy.float32(found.embeddings), wanted) and found.prompt_eval_count > 0
    assert numpy.float32(client.embeddings(model="vectors:latest", prompt=TEXTS[0]).embedding).tolist() == (
        wanted[0].tolist()
    )
    assert len(client.embed(model="vectors", input=LONG).embeddings) == 1  # cut
    with pytest.raises(ollama.ResponseError, match="cut it with truncate=true"):
        client.embed(model="vectors", input=LONG, truncate=False)
    assert client.show("vectors").capabilities == ["embedding"]


# --- errors ----------------------------------------------------------------------------------------------------------


def test_the_list_of_models_says_what_each_gives(numbers_daemon, http):
    gives = {"vectors": ["embeddings"], "ranks": ["classes"], "kinds": ["classes"], "pocket": ["text"]}
    with ExitStack() as loaded:  # nothing is known of others
        for name in gives:
            loaded.enter_context(numbers_daemon.attach(name))
        cards = said(http.get("/v1/models"))["data"]
    assert {card["id"]: card["architecture"]["output_modalities"] for card in cards} == gives


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "vectors of a model of text": ("/v1/embeddings", {"model": "pocket", "input": "a"}, "runner='pooling'"),
    "scores of one": ("/v1/rerank", {"model": "pocket", "query": "a", "documents": ["b"]}, "runner='pooling'"),
    "vectors of classes": ("/v1/embeddings", {"model": "ranks", "input": "a"}, "/v1/classify"),
    "classes of vectors": ("/v1/classify", {"model": "vectors", "input": "a"}, "/v1/embeddings"),
    "a score of several classes": ("/v1/score", {"model": "kinds", "text_1": "a", "text_2": "b"}, "classify"),
    "too many texts": ("/v1/embeddings", {"model": "vectors", "input": ["a"] * 65}, "max_texts"),
    "too many documents": ("/v1/rerank", {"model": "ranks", "query": "a", "documents": ["b"] * 65}, "max_texts"),
    "no texts": ("/v1/embeddings", {"model": "vectors", "input": []}, "at least one"),
    "an empty text among others": ("/v1/embeddings", {"model": "vectors", "input": ["a", ""]}, "^Text 1: .*empty"),
    "a text that is too long": ("/v1/embeddings", {"model": "vectors", "input": LONG}, "truncate_prompt_tokens=-1"),
    "Cohere's, too": ("/v2/embed", {"model": "vectors", "texts": [LONG], "truncate": "NONE"}, "with truncate=END"),
    "more numbers than there are": ("/v1/embeddings", {"model": "vectors", "input": "a", "dimensions": 65}, "have 64"),
    "an unknown prompt": ("/v1/embeddings", {"model": "vectors", "input": "a", "prompt_name": "qery"}, "mean query"),
    "an unknown field": ("/v1/embeddings", {"model": "vectors", "input": "a", "dimension": 8}, "mean dimensions"),
    "an id that isn't there": ("/v1/embeddings", {"model": "vectors", "input": [999_999]}, "vocabulary"),
    "sides that don't fit": ("/v1/score", {"model": "ranks", "text_1": ["a"] * 2, "text_2": ["b"] * 3}, "2 queries"),
    "text of a model of vectors": ("/v1/completions", {"model": "vectors", "prompt": "a"}, "/v1/embeddings"),
    "talk": ("/v1/chat/completions", {"model": "ranks", "messages": [{"role": "user", "content": "a"}]}, "writes no"),
}


@for_each("name", REFUSED)
def test_what_a_model_or_the_server_cannot_do_is_refused_with_what_to_do(http, name):
    path, body, sentence = REFUSED[name]
    reply = http.post(path, json=body)
    message = reply.json()["error"]["message"]
    assert reply.status_code == 400, message
    assert re.search(sentence, message), message


HOSTILE = {
    "/v1/embeddings": [
        b'{"input": null}', b'{"input": [[]]}', b'{"input": [5, "a"]}', b'{"input": [[5], 5]}', b'{"input": ""}',
        b'{"input": "\\ud800"}', b'{"input": "a", "dimensions": 0}', b'{"input": "a", "truncate_prompt_tokens": 0}',
        b'{"input": "a", "dimensions": 1e99}', b'{"input": "a", "encoding_format": "hex"}', b'{"input": {"a": 1}}',
        b'{"input": ' + b"[" * 40_000, b'{"input": [[' + b"5," * 400_000 + b"5]]}",
        b'{"input": "' + b"a " * 10**6 + b'"}',
    ],
    "/v1/rerank": [
        b'{"query": "a", "documents": [null]}', b'{"query": "", "documents": ["a"]}', b'{"documents": ["a"]}',
        b'{"query": "a", "documents": [{"text": 5}]}', b'{"query": "a", "documents": ["a"], "top_n": 0}',
        b'{"query": "' + b"a " * 10**6 + b'", "documents": ["a"]}',
    ],
    "/v1/score": [b"{}", b'{"text_1": "a"}', b'{"text_1": [], "text_2": []}', b'{"text_1": "a", "text_2": [5]}'],
    "/v2/embed": [b"{}", b'{"texts": []}', b'{"inputs": [{"content": 5}]}', b'{"images": ["data:,"]}'],
    "/pooling": [b'{"input": "a", "task": "plugin"}', b'{"input": "a", "by_token": 5}'],
    "/api/embed": [b'{"input": {"a": 1}}', b'{"input": "a", "dimensions": -1}', b'{"input": ["a", ""]}'],
}  # fmt: skip


@for_each("path", HOSTILE)
def test_hostile_bodies_are_refused_and_the_next_one_is_served(http, path):
    for body in HOSTILE[path]:
        reply = http.post(
            path, content=b'{"model": "vectors", ' + body[1:], headers={"content-type": "application/json"}
        )
        assert reply.status_code in (400, 413) or b"ud800" in body, (body[:80], reply.text[:200])
        assert reply.status_code < 500
    assert said(http.post("/v1/embeddings", json={"model": "vectors", "input": "a"}))
