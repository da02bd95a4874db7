"""Requests that run are listed to whoever sent them and to nobody else, and end when they are stopped."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import openai
import pytest
from builders.served import Served, served
from builders.watching import wait_until

ENDLESS = {"ignore_eos": True, "max_tokens": 1900}
BODIES = {
    "/v1/completions": {"prompt": "SECRET What is", **ENDLESS},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "SECRET"}], **ENDLESS},
    "/v1/responses": {"input": "SECRET", "text": {"format": {"type": "json_schema", "name": "long", "schema": {
        "type": "array", "minItems": 500, "items": {"type": "integer", "minimum": 1000000}}}}},
}  # fmt: skip


def listed(client: httpx.Client, **headers: str) -> list[dict]:
    return client.get("/v1/requests", headers=headers).json()["data"]


@contextmanager
def asked(client: httpx.Client, path: str, body: dict, headers: dict | None = None) -> Iterator[Future]:
    """Its reply in a thread, while the test looks at it."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(client.post, path, json={"model": "pocket", **body}, headers=headers)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_request_is_listed_while_it_runs_and_ends_when_it_is_stopped(server: Served, http, path, is_streamed):
    with asked(http, path, {**BODIES[path], "stream": is_streamed}) as reply:
        wait_until(lambda: [each for each in listed(http) if each["generated_tokens"] > 3], 30, "it is being answered")
        [found] = listed(http)
        assert (found["endpoint"], found["model"], found["state"]) == (path, "pocket", "generating")
        assert found["prompt_tokens"] > 0 and found["seconds"] > 0 and "SECRET" not in json.dumps(found)
        stopped = http.delete("/v1/requests/" + found["id"])
        assert (stopped.status_code, stopped.json()["stopped"]) == (200, True)
        told = reply.result(10)
    assert told.status_code == (200 if is_streamed else 499)
    assert "was stopped" in told.text
    assert found["id"] in told.text or not is_streamed, "the answer has the id that is listed"
    wait_until(lambda: server.stats().running == 0, 5, "the engine has ended it")
    assert listed(http) == []


def test_what_is_not_running_cannot_be_stopped(http):
    for name in ("chatcmpl-0123", "a/b", "%00", "x" * 3000):
        assert http.delete("/v1/requests/" + name).status_code == 404


def test_a_request_that_waits_for_its_place_can_be_stopped(pocket):
    with served(*pocket, max_requests=1) as server, httpx.Client(base_url=server.address, timeout=30) as client:
        body = BODIES["/v1/completions"]
        with asked(client, "/v1/completions", body) as first, asked(client, "/v1/completions", body) as second:
            states = ["generating", "waiting"]
            wait_until(lambda: sorted(each["state"] for each in listed(client)) == states, 30, "both are listed")
            for state in ("waiting", "generating"):
                [found] = [each["id"] for each in listed(client) if each["state"] == state]
                client.delete("/v1/requests/" + found)
                wait_until(lambda: found not in [each["id"] for each in listed(client)], 10, "it has ended")  # noqa: B023
            assert first.result(10).status_code == second.result(10).status_code == 499


def test_a_key_neither_sees_nor_stops_what_another_has_sent(pocket, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first\nsecond\n")
    first, second = {"Authorization": "Bearer first"}, {"Authorization": "Bearer second"}
    with served(*pocket, api_key_file=str(keys)) as server, httpx.Client(base_url=server.address, timeout=30) as client:
        assert client.get("/v1/requests").status_code == 401
        assert client.delete("/v1/requests/chatcmpl-1").status_code == 401
        with asked(client, "/v1/completions", BODIES["/v1/completions"], first) as reply:
            wait_until(lambda: listed(client, **first), 30, "it is listed")
            [found] = listed(client, **first)
            assert listed(client, **second) == []
            path = "/v1/requests/" + found["id"]
            refused = client.delete(path, headers=second)
            assert (refused.status_code, refused.json()) == (404, client.delete(path + "0", headers=second).json())
            assert client.delete(path, headers=first).status_code == 200
            assert reply.result(10).status_code == 499


def test_a_page_of_another_site_can_stop_nothing(server, http):
    """It may send no DELETE without asking first, and nothing here agrees to that; nor may it name another host."""
    asking = {"Origin": "https://other.example", "Access-Control-Request-Method": "DELETE"}
    agreed = http.options("/v1/requests/chatcmpl-1", headers=asking)
    assert agreed.status_code == 405
    assert not [name for name in agreed.headers if name.startswith("access-control")]
    for method in ("GET", "DELETE"):
        assert http.request(method, "/v1/requests", headers={"Host": "other.example"}).status_code == 403


def test_openais_client_is_told_in_its_own_errors_and_does_not_try_again(server, http):
    with openai.OpenAI(base_url=server.address + "/v1", api_key="none", timeout=60) as client, \
            ThreadPoolExecutor(1) as thread:  # fmt: skip
        work = thread.submit(client.completions.create, model="pocket", prompt="SECRET", max_tokens=1900,
                             extra_body={"ignore_eos": True})  # fmt: skip
        wait_until(lambda: listed(http), 30, "it is listed")
        http.delete("/v1/requests/" + listed(http)[0]["id"])
        with pytest.raises(openai.APIStatusError, match="was stopped"):
            work.result(20)
    assert listed(http) == []
