"""Shapes that are made to take long are refused at once, and clients beside them go on."""

import json
import threading

import httpx
import pytest

TEXT = {"model": "pocket", "prompt": "hi", "max_tokens": 1}
# Each took from several seconds to minutes, and another's text had no turn meanwhile.
SHAPES = {
    "comments": {"guided_grammar": "root ::= " + "(*" * 250_000},
    "counts": {"guided_grammar": 'root ::= "a"{' + " " * 20_000},
    "triggers": {
        "guided_structural_tag": json.dumps(
            {"structures": [{"begin": "z", "end": ""}] * 10_000, "triggers": ["a"] * 40_000 + ["z"]}
        )
    },
}
# On a machine that has much else to do.
BOUND = 20.0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_that_is_made_to_take_long_is_refused_and_others_go_on(http, server, shape):
    answers = []

    def ask():
        with httpx.Client(base_url=server.address, timeout=BOUND) as client:
            answers.append(client.post("/v1/completions", json={**TEXT, **SHAPES[shape]}).status_code)

    hostile = [threading.Thread(target=ask) for _ in range(3)]
    for each in hostile:
        each.start()
    assert http.post("/v1/completions", json={**TEXT, "guided_regex": "[a-c]"}, timeout=BOUND).status_code == 200
    for each in hostile:
        each.join()
    assert answers == [400] * 3
