"""What a server refuses, in sentences that say what to write instead."""

import pytest

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


@pytest.mark.parametrize("path, name", [(CHAT, "messages"), (RESPONSES, "input"), ("/tokenize", "messages")])
def test_a_role_that_the_template_leaves_out_is_refused(http, path, name):
    answer = http.post(path, json={"model": "pocket", name: [{"role": "usr", "content": "What is 2 + 3?"}]})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and "knows no role 'usr'" in message and message.endswith("Did you mean user?")


@pytest.mark.parametrize(
    "path, advice",
    [
        ("/api/chat", "Here it is /v1/chat/completions."),
        ("/api/tags", "Here it is /v1/models."),
        ("/v1/messages", "Here it is /v1/chat/completions."),
        ("/v1/embeddings", "Embeddings are not computed here."),
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/zzz", "/openapi.json lists them."),
    ],
)
def test_a_path_of_another_server_is_told_with_ours(http, path, advice):
    answer = http.post(path, json={"model": "pocket"})
    assert answer.status_code == 404 and answer.json()["error"]["message"].endswith(advice)


@pytest.mark.parametrize("form", [{"type": "jsn"}, {"type": "json_schema"}, {}])
def test_the_form_of_a_response_is_refused_by_its_own_name(http, form):
    body = {"model": "pocket", "input": "Hello", "text": {"format": form}}
    reply = http.post(RESPONSES, json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith('text.format must be {"type": "text"}')
