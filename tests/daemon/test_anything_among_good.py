"""Anything in the place of a prompt, a message or a parameter, by every way in: only that fails, with a sentence.

Good requests stand between the others, and are answered as they are alone. The long form tries five thousand.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from builders.random_values import OBJECTS, SCALARS, any_conversation, any_fields, any_message, any_params, any_prompt
from builders.tiny_model import tiny_model
from builders.watching import tree_processes

from penstock import LLM, PenstockError, SamplingParams
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import RequestError

GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
GOOD = [7, 8, 9]
HELLO = [{"role": "user", "content": "Hello"}]
QUICK, LONG = 30, 600  # of each of eight kinds


@pytest.fixture(params=["private", "attached"])
def either(request, private, attached) -> LLM:
    return {"private": private, "attached": attached}[request.param]


@pytest.fixture(params=[QUICK, pytest.param(LONG, marks=pytest.mark.long)], ids=["quick", "long"])
def count(request) -> int:
    return request.param


def check(outputs: list[Any], what: list[Any]) -> None:
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
    kinds_of_values = [make(chance) for make in (*SCALARS, *OBJECTS)]  # each kind once, then any
    prompts = between(GOOD, lambda: kinds_of_values.pop() if kinds_of_values else any_prompt(chance), count)
    before = _processes(either)
    check(either.generate(prompts, GREEDY, use_tqdm=False), prompts)
    params = between(GREEDY, lambda: any_params(chance), count)
    check(either.generate([GOOD] * len(params), params, use_tqdm=False), params)
    conversations = between(HELLO, lambda: any_conversation(chance), count)
    check(either.chat(conversations, GREEDY, use_tqdm=False), conversations)
    prompts = between(GOOD, lambda: (any_prompt, any_conversation)[chance.random() < 0.5](chance), count)
    lasts = []
    for prompt in prompts:
        try:
            outputs = list(either.stream(prompt, GREEDY))
        except RequestError as error:  # of a conversation by itself, or of several prompts
            lasts.append(SimpleNamespace(finished=True, error_code=400, error_msg=str(error)))
            continue
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


BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/completions": ({"prompt": "Hello"}, "prompt model stream echo suffix stream_options user"),
    "/v1/chat/completions": (
        {"messages": HELLO}, "messages tools tool_choice chat_template_kwargs chat_template stream logprobs"
    ),
    "/v1/responses": ({"input": "Hello"}, "input tools text reasoning instructions stream"),
    "/v1/messages": ({"messages": HELLO}, "messages system tools tool_choice thinking output_config stream"),
    "/api/chat": (
        {"messages": HELLO, "options": {"num_predict": 2}}, "messages tools format options think stream"
    ),
    "/tokenize": ({"prompt": "Hello"}, "prompt messages tools add_special_tokens"),
    "/detokenize": ({"tokens": GOOD}, "tokens model"),
}  # fmt: skip


def test_requests_over_http(daemon, count):
    chance = random.Random(count)
    with httpx.Client(base_url=daemon.status().http, timeout=60) as http:
        expected = _good(http)
        for number in range(count):
            path = chance.choice(list(BODIES))
            good, own = BODIES[path]
            bound = {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 2} if "token" not in path else {}
            bound = {} if path.startswith("/api/") else bound
            body = {"model": "pocket", **good, **bound, **_some_fields(chance, tuple(own.split()))}
            answer = http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
            assert answer.status_code in (200, 400, 404, 413, 422), (path, answer.text, body)
            error = {} if answer.status_code == 200 else answer.json()["error"]
            assert answer.status_code == 200 or (error if isinstance(error, str) else error["message"]), body
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


# --- a tokenizer whose library panics at one text ---------------------------------------------------------------------


PARAMS = SamplingParams(max_tokens=2, ignore_eos=True)
# At the beginning of a text the library counts what was put in there one character too far.
PANICS = {"type": "Replace", "pattern": {"Regex": "^(?=bad)"}, "content": "x" * 1000}
CONFIG = """
[models.panics]
model = "{}"
load_format = "stand-in"
num_gpu_blocks_override = 64
quiet = true
"""


def model_with(folder: Path, **parts: Any) -> Path:
    tiny_model(folder, "llama", adds_bos=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **parts}))
    return folder


def test_a_text_or_tokens_at_which_it_panics_are_refused(tmp_path):
    tokenizer = Tokenizer(model_with(tmp_path / "encodes", normalizer=PANICS))
    assert tokenizer.encode("good") and tokenizer.encode("a bad one")
    for call, given in ((tokenizer.encode, "bad"), (tokenizer.encode_batch, ["good", "bad"])):
        with pytest.raises(RequestError, match="can't be tokenized: the tokenizers library failed"):
            call(given)
    strips = {"type": "Strip", "content": "!", "start": 5, "stop": 5}
    tokenizer = Tokenizer(model_with(tmp_path / "decodes", decoder=strips))
    bad, good = tokenizer.token_to_id("!"), tokenizer.token_to_id("a")
    assert tokenizer.decode(good) == tokenizer.decode_token(good) == "a"
    for call, given in ((tokenizer.decode, bad), (tokenizer.decode, [bad, bad]), (tokenizer.decode_token, bad)):
        with pytest.raises(RequestError, match="no text: the tokenizers library failed"):
            call(given)


def test_one_such_prompt_ends_alone_in_a_batch_and_over_http(start, tmp_path):
    daemon = start(CONFIG.format(model_with(tmp_path / "model", normalizer=PANICS)), "--http", "127.0.0.1:0")
    with daemon.attach("panics") as llm:
        outputs = llm.generate(["good", "bad", "a bad one", "bad too"], PARAMS, use_tqdm=False)
        assert [output.error_code for output in outputs] == [200, 400, 200, 400]
        assert "the tokenizers library failed" in outputs[1].error_msg
        [output] = llm.stream("bad", PARAMS)
        assert output.error_code == 400
        spelled = SamplingParams(max_tokens=2, bad_words=["bad"])
        assert llm.generate("good", spelled, use_tqdm=False)[0].error_code == 400
        for path, more in {"/v1/completions": {"max_tokens": 2}, "/tokenize": {}}.items():
            body = {"model": "panics", "prompt": "bad", **more}
            reply = httpx.post(daemon.status().http + path, json=body, timeout=60)
            assert reply.status_code == 400 and "the tokenizers library failed" in reply.text, reply.text
        assert llm.generate("good", PARAMS, use_tqdm=False)[0].error_code == 200
