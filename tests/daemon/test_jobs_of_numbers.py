"""Jobs and batches whose lines ask for numbers: what an endpoint or a call gives, in the same bytes each time."""

import json
import re
from typing import Any

import httpx
import numpy
from builders.cases import for_each
from builders.daemon_numbers import LONG, QUESTIONS, TEXTS
from builders.daemon_numbers import said as body_of
from builders.later import Later
from builders.watching import wait_until

from penstock import PoolingParams

openai = Later("openai")


PAIR = {"text_1": TEXTS[0], "text_2": TEXTS[1:]}
RANKS = {"query": TEXTS[0], "documents": TEXTS, "return_documents": True}
LINES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "vectors": [
        ("/v1/embeddings", {"input": TEXTS, "dimensions": 8}),
        ("/v1/embeddings", {"input": [5, 6, 7], "encoding_format": "base64"}),
        ("/pooling", {"input": TEXTS[:2], "by_token": True}),
        ("/v2/embed", {"texts": TEXTS, "embedding_types": ["float", "ubinary"]}),
        ("/v1/rerank", RANKS),
        ("/v1/score", PAIR),
    ],
    "ranks": [("/v1/rerank", RANKS), ("/v2/rerank", RANKS | {"top_n": 1}), ("/rerank", RANKS), ("/v1/score", PAIR)],
    "kinds": [("/v1/classify", {"input": TEXTS})],
    "pocket": [("/v1/decisions", {"input": TEXTS[0], "questions": QUESTIONS[:3]})],
}
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a text that fails": ("/v1/embeddings", {"input": [TEXTS[0], LONG]}, "^Text 1: .*truncate_prompt_tokens=-1"),
    "another model's": ("/v1/classify", {"input": "a"}, "/v1/embeddings"),
    "a query that fails": ("/v1/rerank", RANKS | {"query": LONG}, "^The query: .*truncate_prompt_tokens=-1"),
}


def batch_line(name: object, url: str, body: dict[str, Any]) -> str:
    return json.dumps({"custom_id": str(name), "method": "POST", "url": url, "body": body})


def without_names(body: dict[str, Any]) -> dict[str, Any]:
    """What depends neither on a request's own id nor on its time and place; a notice comes once for each model."""
    usage = {key: each for key, each in body.get("usage", {}).items() if not key.endswith("_details")}
    return {key: each for key, each in body.items() if key not in ("id", "created", "notice")} | {"usage": usage}


@for_each("name", LINES)
def test_lines_for_numbers_have_the_answers_of_their_endpoints(numbers_daemon, name, tmp_path):
    source, wrong = tmp_path / f"{name}.jsonl", WRONG if name == "vectors" else {}
    lines = [batch_line(*each) for each in ((n, *line) for n, line in enumerate(LINES[name]))]
    lines += [batch_line(what, url, body) for what, (url, body, _) in wrong.items()]
    source.write_text("\n".join(lines))
    with numbers_daemon.attach(name) as llm:
        [one, two] = [llm.batch(source, tmp_path / f"{name}.{n}", use_tqdm=False) for n in (1, 2)]
    assert one.output.read_bytes() == two.output.read_bytes()
    found = [json.loads(line)["response"]["body"] for line in one.output.read_text().splitlines()]
    for (url, body), answer in zip(LINES[name], found, strict=True):
        reply = body_of(httpx.post(numbers_daemon.status().http + url, json=body | {"model": name}, timeout=60))
        assert without_names(answer) == without_names(reply)
        assert answer["id"].split("-")[0] == reply["id"].split("-")[0] and not answer.get("created")
    failed = [json.loads(line) for line in one.errors.read_text().splitlines()] if wrong else []
    for (_, _, sentence), line in zip(wrong.values(), failed, strict=True):
        assert re.search(sentence, line["response"]["body"]["error"]["message"])


def test_a_batch_of_vectors_over_http_has_the_bytes_of_a_job(numbers_daemon, vectors, tmp_path):
    bodies = [{"model": "vectors", "input": TEXTS[:n]} for n in (1, 2, 3)] + [{"model": "vectors", "input": ["a"] * 65}]
    content = "\n".join(batch_line(n, "/v1/embeddings", body) for n, body in enumerate(bodies))
    (tmp_path / "in.jsonl").write_text(content)
    job = vectors.batch(tmp_path / "in.jsonl", tmp_path / "out", use_tqdm=False)
    with openai.OpenAI(base_url=numbers_daemon.status().http + "/v1", api_key="none", max_retries=0) as client:
        file = client.files.create(file=("in.jsonl", content.encode()), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
        wait_until(lambda: client.batches.retrieve(batch.id).status == "completed", "it has ended")
        batch = client.batches.retrieve(batch.id)
        answers, errors = (client.files.content(each).read() for each in (batch.output_file_id, batch.error_file_id))
    assert answers == b"".join(job.output.read_bytes().splitlines(keepends=True)[:3])
    assert b"option max_texts" in errors and batch.usage.input_tokens > 0 and batch.usage.output_tokens == 0


def test_a_job_of_texts_has_the_vectors_of_a_call_and_nan_for_a_text_that_fails(vectors, tmp_path):
    (tmp_path / "in.txt").write_text("\n\n".join([*TEXTS, LONG]))
    params = PoolingParams(dimensions=16, prompt_name="query")
    wanted = vectors.embed(TEXTS, params, as_numpy=True, use_tqdm=False)
    job = vectors.batch(tmp_path / "in.txt", tmp_path / "out.npy", params, use_tqdm=False)
    found = numpy.load(job.output, mmap_mode="r")
    assert found.dtype == numpy.float32 and numpy.array_equal(found[:3], wanted)
    assert numpy.isnan(found[3:]).all() and found.shape == (4, 16) and job.num_failed == 1
    lines = vectors.batch(tmp_path / "in.txt", tmp_path / "out.jsonl", params, use_tqdm=False).output
    assert [json.loads(line)["embedding"] for line in lines.open()] == wanted.tolist()


def test_commands_embed_a_file_and_rank_its_lines(numbers_daemon, vectors, tmp_path, said, monkeypatch):
    def run(*words: object) -> tuple[int, str]:
        return said(*words, "--connect", numbers_daemon.address, "--quiet")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"text": text, "id": text[:5]}) for text in TEXTS))
    out = tmp_path / "out.npy"
    assert run("embed", "in.jsonl", "--output", out, "--model", "vectors", "--dimensions", 8) == (0, "")
    wanted = vectors.embed(TEXTS, PoolingParams(dimensions=8), as_numpy=True, use_tqdm=False)
    assert numpy.array_equal(numpy.load(out), wanted)
    status, told = run("rerank", "a hen", "in.jsonl", "--model", "ranks", "--json", "--top-n", 2)
    found = [json.loads(line) for line in told.splitlines()]
    with numbers_daemon.attach("ranks") as ranks:
        scores = [each.outputs.score for each in ranks.score("a hen", TEXTS, use_tqdm=False)]
    best = sorted(range(3), key=lambda place: -scores[place])[:2]
    assert status == 0 and [(each["line"] - 1, each["relevance_score"]) for each in found] == [
        (place, scores[place]) for place in best
    ]
    assert found[0]["id"] == TEXTS[best[0]][:5] and found[0]["text"] == TEXTS[best[0]]
    (tmp_path / "in.txt").write_text(f"{LONG}\n{TEXTS[0]}\n")
    status, told = run("rerank", "a hen", "in.txt", "--model", "ranks")
    assert status == 1 and re.fullmatch(rf"0\.\d{{4}}  2  {TEXTS[0]}\npenstock: Line 1: The text has .*\n", told)
    for command in (("embed", "in.txt", "-o", "other.npy"), ("rerank", "a hen", "in.txt")):
        status, told = run(*command, "--model", "pocket")
        assert status == 1 and "writes text" in told
    status, told = run("embed", "in.jsonl", "--output", out, "--model", "vectors")
    assert status == 1 and 'pooling options changed from {"dimensions": 8} to {}' in told
