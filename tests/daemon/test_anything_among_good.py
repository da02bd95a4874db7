"""Anything in the place of a prompt, a message or a parameter, by every way in: only that fails, with a sentence.

Good requests stand between the others, and are answered as they are alone. The long form tries five thousand.
"""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders.random_values import any_conversation, any_fields, any_message, any_params, any_prompt
from builders.starts import WORDS
from builders.watching import loop_face, tree_processes

from penstock import LLM, PenstockError, SamplingParams
from penstock.frontend.cli import main

GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
GOOD = [7, 8, 9]
HELLO = [{"role": "user", "content": "Hello"}]
QUICK, LONG = 30, 600  # of each of eight kinds


@pytest.fixture(params=["private", "attached"])
def either(request, private, attached) -> LLM:
    """A tree of its own, and one that the daemon has."""
    return {"private": private, "attached": attached}[request.param]


@pytest.fixture(params=[QUICK, pytest.param(LONG, marks=pytest.mark.long)], ids=["quick", "long"])
def count(request) -> int:
    return request.param


def check(outputs: list[Any], what: list[Any]) -> None:
    """Every third is good; the others end with an answer or a sentence."""
    assert len(outputs) == len(what)
    expected = outputs[0].outputs.token_ids
    for place, output in enumerate(outputs):
        assert output.finished and output.error_code in (200, 400), (output, kinds(what[place]))
        assert output.error_code == 200 or output.error_msg, kinds(what[place])
        if place % 3 == 0:
            assert (output.error_code, list(output.outputs.token_ids)) == (200, list(expected))


def kinds(value: Any) -> str:
    try:
        return repr(value)[:200]
    except Exception:
        return type(value).__name__


def between(good: Any, make: Callable[[], Any], count: int) -> list[Any]:
    return [good if place % 3 == 0 else make() for place in range(3 * count // 2)]


def test_in_a_list_or_a_stream_only_what_is_wrong_fails(either, count):
    chance = random.Random(count)
    prompts = between(GOOD, lambda: any_prompt(chance), count)
    before = _processes(either)
    check(either.generate(prompts, GREEDY, use_tqdm=False), prompts)
    params = between(GREEDY, lambda: any_params(chance), count)
    check(either.generate([GOOD] * len(params), params, use_tqdm=False), params)
    conversations = between(HELLO, lambda: any_conversation(chance), count)
    check(either.chat(conversations, GREEDY, use_tqdm=False), conversations)
    prompts = between(GOOD, lambda: (any_prompt, any_conversation)[chance.random() < 0.5](chance), count)
    lasts = []
    for prompt in prompts:
        outputs = list(either.stream(prompt, GREEDY))
        lasts.append(outputs[-1])
        lasts[-1].outputs[0].token_ids = [token for output in outputs for token in output.outputs.token_ids]
    check(lasts, prompts)
    assert _processes(either) == before


def test_what_stands_in_the_place_of_all_prompts_raises_or_fails_with_a_sentence(either, count):
    chance = random.Random(count)
    for _ in range(count):
        value, params = any_prompt(chance), any_params(chance)
        calls = (
            (either.generate, (value, GREEDY), {}),
            (either.generate, ([GOOD], params), {}),
            (either.chat, (value, GREEDY), {}),
            (either.chat, (HELLO, GREEDY), {"tools": value}),
            (either.chat, (HELLO, GREEDY), {"chat_template_kwargs": value}),
        )
        for call, arguments, named in calls:
            try:
                outputs = call(*arguments, **named, use_tqdm=False)
                sentences = [output.error_msg for output in outputs if output.error_code != 200]
            except (PenstockError, TypeError, OSError) as error:  # OSError: what a broken value itself raises
                sentences = [str(error)]
            assert all(sentences), (kinds(value), kinds(params))
    check(either.generate([GOOD], GREEDY, use_tqdm=False), [GOOD])


def test_an_event_loop(private, count):
    async def run() -> None:
        llm, chance = loop_face(private), random.Random(count)
        prompts = between(GOOD, lambda: any_prompt(chance), count)
        check(await llm.generate(prompts, GREEDY), prompts)
        conversations = between(HELLO, lambda: any_conversation(chance), count)
        check(await llm.chat(conversations, GREEDY), conversations)
        for prompt in prompts[:count]:
            *_, last = [output async for output in llm.stream(prompt, GREEDY)]
            assert last.error_code == 200 or last.error_msg

    asyncio.run(run())


def test_lines_of_a_file(count, tmp_path, capfd):
    chance = random.Random(count)

    def line() -> str:
        value = any_prompt(chance, of_json=True)
        if isinstance(value, dict):
            value |= any_fields(chance)
        return json.dumps(value) if chance.random() < 0.9 else json.dumps(value)[:-1] + chance.choice('}]"x')

    lines = between('{"prompt_token_ids": [7, 8, 9], "id": "good"}', line, count)
    (tmp_path / "in.jsonl").write_text("".join(each + "\n" for each in lines))
    words = ["--max-tokens", "2", "--ignore-eos", "--limit-logprobs", "20000", *WORDS]
    files = ["--input", str(tmp_path / "in.jsonl"), "--format", "jsonl", "--temperature", "0", "--quiet"]
    main(["generate", "pocket", *files, *words])
    told = capfd.readouterr()
    assert "Traceback" not in told.err, told.err
    records = sorted(map(json.loads, told.out.encode().splitlines()), key=lambda record: record["index"])
    assert [record["index"] for record in records] == list(range(len(lines)))
    good = [record for record in records if record.get("id") == "good"]
    assert len(good) == len(lines[::3]) and all("error_code" not in record for record in good)
    assert len({str(record["outputs"][0]["token_ids"]) for record in good}) == 1
    assert all(record.get("error_msg") for record in records if "error_code" in record)


BODIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "/v1/completions": ({"prompt": "Hello"}, ("prompt", "model", "stream", "echo", "suffix", "stream_options", "user")),
    "/v1/chat/completions": (
        {"messages": HELLO},
        ("messages", "tools", "tool_choice", "chat_template_kwargs", "chat_template", "stream", "logprobs"),
    ),
    "/v1/responses": ({"input": "Hello"}, ("input", "tools", "text", "reasoning", "instructions", "stream")),
    "/tokenize": ({"prompt": "Hello"}, ("prompt", "messages", "tools", "add_special_tokens")),
    "/detokenize": ({"tokens": GOOD}, ("tokens", "model")),
}


def test_requests_over_http(daemon, count):
    chance = random.Random(count)
    with httpx.Client(base_url=daemon.status().http, timeout=60) as http:
        expected = _good(http)
        for number in range(count):
            path = chance.choice(list(BODIES))
            good, own = BODIES[path]
            bound = {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 2} if "token" not in path else {}
            body = {"model": "pocket", **good, **bound, **_some_fields(chance, own)}
            answer = http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
            assert answer.status_code in (200, 400, 404, 413, 422), (path, answer.text, body)
            assert answer.status_code == 200 or answer.json()["error"]["message"], body
            if number % 10 == 0:
                assert _good(http) == expected


def _some_fields(chance: random.Random, own: tuple[str, ...]) -> dict[str, Any]:
    fields = any_fields(chance, own) if chance.random() < 0.7 else any_fields(chance)
    if "messages" in fields and chance.random() < 0.8:
        fields["messages"] = [any_message(chance, of_json=True) for _ in range(chance.randrange(3))]
    if "input" in fields and chance.random() < 0.5:
        message = any_message(chance, of_json=True)
        fields["input"] = [{"type": "message", **(message if isinstance(message, dict) else {"content": message})}]
    return fields


def _good(http: httpx.Client) -> str:
    body = {"model": "pocket", "messages": HELLO, "max_tokens": 4, "temperature": 0}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def _processes(llm: LLM) -> Any:
    client = llm._session.transport
    return tree_processes(llm) if hasattr(client, "tree") else Path(f"/proc/{client.connection.pid}").exists()
