"""What a server refuses, in sentences that say what to write instead."""

import pytest

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


@pytest.mark.parametrize("path, name", [(CHAT, "messages"), (RESPONSES, "input"), ("/tokenize", "messages")])
def test_a_role_that_the_template_leaves_out_is_refused(http, path, name):
    answer = http.post(path, json={"model": "pocket", name: [{"role": "usr", "content": "What is 2 + 3?"}]})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and "knows no role 'usr'" in message and message.endswith("Did you mean user?")
