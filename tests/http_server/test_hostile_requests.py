"""Requests that have broken other engines: each is refused or answered, and a good one after them is served as before.

What is refused is refused in a sentence that says what to write instead.
"""

import json
import re
import threading
from pathlib import Path

import httpx
from builders.cases import for_each
from builders.later import Later
from builders.raw_http import spoken

hostile = Later("builders.hostile")  # 20 MB of bodies
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
GOOD = {"model": "pocket", "prompt": "What is", "max_tokens": 2, "temperature": 0}


@for_each("kind", lambda: hostile.ADVISORIES)
def test_a_hostile_request_is_refused_and_a_good_one_after_its_kind_is_served(server, http, kind):
    for case in (case for case in hostile.EVERY if case.kind == kind):
        said = spoken(server.port, case.sent)
        status = int(said.split(b" ", 2)[1]) if said.startswith(b"HTTP/1.1 ") else hostile.CLOSED
        assert status in case.right, (case.name, said[:500])
        for secret in ("/root", "/home", "/tmp", "/work", "site-packages", ".py", "0x7", "Traceback", "root:x:"):
            assert secret not in said.decode("latin-1"), case.name
    assert http.post(COMPLETIONS, json=GOOD).status_code == 200


def test_the_page_about_safety_lists_every_kind_with_its_number_and_its_advisories():
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    for kind, advisories in hostile.ADVISORIES.items():
        number = sum(case.kind == kind for case in hostile.EVERY)
        [row] = [line for line in page.splitlines() if line.startswith(f"| {kind} | {number} |")]
        assert all(advisory in row for advisory in advisories)
    drawn = sum(bool(case.advisories) for case in hostile.EVERY)
    assert drawn >= 60 and {case.kind for case in hostile.EVERY} == set(hostile.ADVISORIES)
    assert f"holds {len(hostile.EVERY)} requests, {drawn} of them" in page


# Each took from several seconds to minutes, and another's text had no turn meanwhile.
STRUCTURES = {"structures": [{"begin": "z", "end": ""}] * 10_000, "triggers": ["a"] * 40_000 + ["z"]}
SHAPES = {
    "comments": {"guided_grammar": "root ::= " + "(*" * 250_000},
    "counts": {"guided_grammar": 'root ::= "a"{' + " " * 20_000},
    "triggers": {"guided_structural_tag": json.dumps(STRUCTURES)},
}


@for_each("shape", SHAPES)
def test_a_shape_that_is_made_to_take_long_is_refused_and_others_go_on(http, server, shape):
    answers = []

    def ask():
        answers.append(httpx.post(server.address + COMPLETIONS, json=GOOD | SHAPES[shape], timeout=60).status_code)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for each in threads:
        each.start()
    assert http.post(COMPLETIONS, json=GOOD | {"guided_regex": "[a-c]"}).status_code == 200
    for each in threads:
        each.join()
    assert answers == [400] * 3


# --- sentences -------------------------------------------------------------------------------------------------------


@for_each("path, fields, sentence", [
    *((path, {name: [{"role": role, "content": "What is 2 + 3?"}], **more}, sentence)
      for path, name in ((CHAT, "messages"), (RESPONSES, "input"), ("/tokenize", "messages"))
      for role, more, sentence in (
          ("usr", {}, "knows no role 'usr'.* Did you mean user\\?$"),
          ("user", {"chat_template_kwargs": {"enable_thinkng": False}}, "Did you mean enable_thinking\\?"))),
    *((RESPONSES, {"input": "Hello", "text": {"format": form}}, r'^text\.format must be \{"type": "text"\}')
      for form in ({"type": "jsn"}, {"type": "json_schema"}, {})),
    (CHAT, {"messages": [{"role": "user"}], "tools": [{"name": "f"}]}, r"needs function, .* A tool is .*\}\} here"),
    (RESPONSES, {"input": "Hi", "tools": [{"function": {"name": "f"}}]}, 'needs name, .* A tool is .*"name": …'),
])  # fmt: skip
def test_what_the_template_leaves_out_and_other_endpoints_forms_are_refused_by_their_names(
    http, path, fields, sentence
):
    reply = http.post(path, json={"model": "pocket", **fields})
    assert reply.status_code == 400 and re.search(sentence, reply.json()["error"]["message"])


@for_each("path, advice", [
    ("/slots", "Here it is /v1/requests."),
    ("/v1/moderations", "Texts are not judged here."),
    ("/v1/audio/translations", "give text."),
    ("/embedding", "Here it is /v1/embeddings."),
    ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
    ("/zzz", "/openapi.json lists them."),
])  # fmt: skip
def test_a_path_of_another_server_is_told_with_ours(http, path, advice):
    answer = http.post(path, json={"model": "pocket"})
    assert answer.status_code == 404 and answer.json()["error"]["message"].endswith(advice)


@for_each("fields, param", [
    ({"early_stop": "loud"}, "early_stop"), ({"logit_bias": {"5": 1000}}, "logit_bias"), ({"stop": [""]}, "stop"),
    ({"top_k": 2**40}, "top_k"), ({"bad_words": [""]}, "bad_words"), ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    ({"messages": [{"role": "usr", "content": "Hi"}]}, None),
])  # fmt: skip
def test_a_refusal_names_the_parameter_for_programs_too(http, fields, param):
    reply = http.post(CHAT, json={"model": "pocket", "messages": [{"role": "user", "content": "Hi"}], **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text
