"""Keys take turns at having their grammars compiled: one whose grammars take long makes nobody wait for all of them."""

import json
from contextlib import ExitStack

import httpx
from builders.daemon import wait_for
from builders.raw_http import connected
from builders.served import served

TEXT = {"model": "pocket", "prompt": "hi", "max_tokens": 1}
# More than a client waits for. Each takes 5 s of a processor before it is refused.
NUM_HOSTILE, BOUND = 40, 25.0


def exponential(number):
    """The intersection of so many expressions takes ever twice as long."""
    patterns = [f".*a.{{{each}}}b{number}" for each in range(30)]
    return json.dumps({"allOf": [{"type": "string", "pattern": each} for each in patterns]})


def sent(port, key, body):
    """A connection over which that was asked."""
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    connection = connected(port, BOUND)
    connection.sendall(head.encode() + content)
    return connection


def test_a_keys_grammar_is_compiled_before_the_many_of_another_and_what_is_left_is_not(pocket, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("flood\ngood\n")
    with served(*pocket, api_key_file=str(keys)) as server, ExitStack() as flood:
        for number in range(NUM_HOSTILE):
            flood.enter_context(sent(server.port, "flood", TEXT | {"guided_json": exponential(number)}))
        wait_for(lambda: server.stats().waiting >= NUM_HOSTILE - 3, "the flood is there")
        with httpx.Client(base_url=server.address, timeout=BOUND, headers={"Authorization": "Bearer good"}) as good:
            assert good.post("/v1/completions", json=TEXT | {"guided_regex": "[a-c][x-z]"}).status_code == 200
            assert server.stats().waiting >= NUM_HOSTILE // 2
            flood.close()
            wait_for(lambda: server.stats().waiting == 0, "nobody waits for grammars of a client that has gone")
            # What was begun goes on, and no more of it.
            assert good.post("/v1/completions", json=TEXT | {"guided_regex": "[d-f][x-z]"}).status_code == 200
