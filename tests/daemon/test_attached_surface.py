"""An attached LLM is an LLM: every call gives what a private tree gives."""

import asyncio
import itertools
import json
from operator import attrgetter

import httpx
import pytest
from builders.cases import for_each
from builders.daemon import worker_of
from builders.watching import stopped

from penstock import AsyncLLM, BeamSearchParams, ClosedError, ConfigError, RequestError, SamplingParams
from penstock.frontend.requests.continuation import Continuation
from penstock.frontend.session.attached.request import AttachedRequest
from penstock.protocol.messages import Said
from penstock.protocol.wire import column

GREEDY = SamplingParams(temperature=0, max_tokens=24)
TALK = [{"role": "user", "content": "What is 12 + 7?"}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
PROMPTS = ["What is 2 + 3?", [5, 6, 7, 8], {"prompt": "Say hello.", "priority": 1}, "The capital of"]


OF_REQUEST = attrgetter(
    *["request_id", "prompt", "prompt_token_ids", "error_code", "error_msg", "finished", "prompt_logprobs"]
)
OF_SAMPLE = attrgetter(
    *["index", "text", "token_ids", "finish_reason", "stop_reason", "logprobs", "cumulative_logprob", "score"]
)


def told(outputs):
    return [(*OF_REQUEST(output), *map(OF_SAMPLE, output.outputs)) for output in outputs]


def asked(prompts, params=GREEDY):
    return lambda llm: llm.generate(prompts, params, use_tqdm=False)


BAD_ROLE, BAD_PICTURE = [{**TALK[0], "role": "usr"}], [{**TALK[0], "content": [PICTURE]}]
CALLS = {
    "text, ids and dicts": asked(PROMPTS),
    "sampled with the seeds of their count": asked(
        ["One", "Two", "Three"], SamplingParams(temperature=1.0, max_tokens=16, ignore_eos=True)
    ),
    "several samples with log-probabilities": asked(
        ["Blue"], SamplingParams(n=3, seed=5, max_tokens=6, logprobs=2, prompt_logprobs=1)
    ),
    "the model's own defaults": asked(["2 + 2 is"], None),
    "a conversation, a role that no template knows, and a picture that this model can't see": lambda llm: llm.chat(
        [TALK, BAD_ROLE, BAD_PICTURE, TALK], GREEDY, use_tqdm=False
    ),
    "answers that go on": asked([Continuation(prompt, [Said(column([7, 8, 9]))]) for prompt in PROMPTS]),
    "beams": lambda llm: llm.beam_search(["The"], BeamSearchParams(beam_width=3, max_tokens=6), use_tqdm=False),
    "an iterator out of order": lambda llm: sorted(
        llm.generate_iter(iter(PROMPTS), GREEDY, ordered=False), key=lambda output: int(output.request_id)
    ),
    "bad requests among good ones": asked(
        ["", "Good", [10**6], [2**40], [-1], {"prompt": "x", "image": 1}, "word " * 4000]
    ),
    "a shape": asked(["Yes or no?"], SamplingParams(guided_choice=["yes", "no"], temperature=0)),
}


@for_each("call", CALLS)
def test_a_call_gives_what_a_private_tree_gives(call, daemon, private):
    with daemon.attach() as llm:
        got = told(CALLS[call](llm))
    # Numbers and seeds of a private tree go on counting from call to call: compare with those of a door of its own.
    private._session.door = private._session.door.counting_for(None, itertools.count())
    expected = told(CALLS[call](private))
    assert [answer[1:] for answer in got] == [answer[1:] for answer in expected]
    assert [answer[0] for answer in got] == [str(number) for number in range(len(got))]


def test_a_stream_comes_piece_by_piece_mistakes_raise_at_their_line_and_all_else_is_the_models(attached, private):
    pieces = list(attached.stream(TALK, GREEDY))
    whole = private.chat(TALK, GREEDY, use_tqdm=False)[0]
    assert "".join(piece.outputs.text for piece in pieces) == whole.outputs.text
    assert [token for piece in pieces for token in piece.outputs.token_ids] == whole.outputs.token_ids
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[0].prompt == whole.prompt and pieces[-1].prompt_token_ids == whole.prompt_token_ids
    with pytest.raises(RequestError, match="2 prompts and 1 sampling_params"):
        attached.generate(["a", "b"], [GREEDY])
    with pytest.raises(RequestError, match="argument of the call itself"):
        attached.chat(TALK, chat_template_kwargs={"messages": []})
    with pytest.raises(RequestError, match=r"reads no 'enable_thinkng'\. Did you mean enable_thinking\?"):
        attached.apply_chat_template(TALK, enable_thinkng=False)
    assert attached.apply_chat_template(TALK) == private.apply_chat_template(TALK)
    assert attached.get_tokenizer().encode("Hello") == private.get_tokenizer().encode("Hello")
    assert attached.stats().blocks == 128 and attached.list_loras() == []


def test_a_request_brings_its_template_and_one_that_goes_wrong_ends_alone(attached):
    template = "Q: {{ messages[0].content }} A:"
    [output] = attached.chat(TALK, GREEDY, use_tqdm=False, chat_template=template)
    assert output.prompt == attached.apply_chat_template(TALK, template) == "Q: What is 12 + 7? A:"
    bad, good = attached.chat([[{"content": "no role"}], TALK], GREEDY, use_tqdm=False)
    assert bad.error_code == 400 and "role" in bad.error_msg and good.error_code == 200
    doubling = "{% set a = namespace(b='x') %}{% for i in range(99) %}{% set a.b = a.b + a.b %}{% endfor %}"
    with pytest.raises(RequestError, match="more memory"):  # of a conversation by itself
        attached.chat(TALK, GREEDY, use_tqdm=False, chat_template=doubling)
    failed, _ = attached.chat([TALK, TALK], GREEDY, use_tqdm=False, chat_template=doubling)
    assert failed.error_code == 400 and "more memory" in failed.error_msg
    assert attached.chat(TALK, GREEDY, use_tqdm=False)[0].error_code == 200


def test_an_event_loop_has_the_same_surface(daemon, private):
    async def talk(llm):
        both = await asyncio.gather(llm.generate(["What is 2 + 3?"], GREEDY), llm.chat(TALK, GREEDY))
        return *both, [piece async for piece in llm.stream(TALK, GREEDY)], await llm.stats()

    generated, chatted, pieces, stats = on_a_loop(daemon, talk)
    assert told(generated)[0][2:] == told(private.generate(["What is 2 + 3?"], GREEDY, use_tqdm=False))[0][2:]
    assert "".join(piece.outputs.text for piece in pieces) == chatted[0].outputs.text
    assert stats.blocks == 128


def test_answers_over_http_and_to_scripts_are_proved_by_daemon_and_tree(daemon, attached, private, tmp_path):
    asked = {"model": "pocket", "receipt": True, "temperature": 1, "ignore_eos": True}
    weather = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    tools = {"tools": [{"type": "function", "function": weather}]}
    chats = [{}, {"n": 2, "logprobs": True, "top_logprobs": 2}, tools, {**tools, "include_reasoning": False}]
    flat = [{"type": "function", **weather}, {"type": "function", "name": "search", "parameters": None}]
    named = {"type": "function", "name": "weather"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [named]}
    repeated = {
        "input": "Say hello.",
        "instructions": "Be brief.",
        "max_output_tokens": 40,
        "tools": flat,
        "top_p": 0.9,
    }
    sent = [
        *(("chat/completions", {"messages": TALK, "max_tokens": 9, **each}) for each in chats),
        ("completions", {"prompt": ["One", "Two"], "n": 2, "logprobs": 1, "max_tokens": 9}),
        ("completions", {"prompt": "One", "max_tokens": 9, "stream": True}),
        ("responses", {"input": "Say hello.", "max_output_tokens": 9}),
        *(("responses", {**repeated, "tool_choice": choice}) for choice in (None, "none", "required", named, allowed)),
    ]
    server = f"{daemon.status().http}/v1"
    replies = [httpx.post(f"{server}/{path}", json={**asked, **own}, timeout=60).text for path, own in sent]
    chunks = [json.loads(line[6:]) for line in replies.pop(5).splitlines() if line.startswith("data: {")]
    assert [chunk.get("receipt", "")[:4] for chunk in chunks] == [""] * (len(chunks) - 1) + ["pr1_"]
    (tmp_path / "bodies.jsonl").write_text("\n".join(replies))
    params = SamplingParams(temperature=1, max_tokens=9, receipt=True)
    outputs = attached.generate(PROMPTS, params, use_tqdm=False) + private.generate(PROMPTS, params, use_tqdm=False)
    for llm in (attached, private):
        verdicts = llm.verify(tmp_path / "bodies.jsonl") + llm.verify(outputs)
        assert [verdict.sentence for verdict in verdicts] == ["proved"] * (6 + 5 + 8)
    changed = {**json.loads(replies[-1]), "instructions": "Be rude."}
    (tmp_path / "changed.jsonl").write_text(json.dumps(changed) + "\n" + json.dumps({**changed, "top_p": 1.0}))
    assert [verdict.reason for verdict in private.verify(tmp_path / "changed.jsonl")] == [
        "instructions: the receipt is of another question", "top_p: the receipt has another"
    ]  # fmt: skip
    text = outputs[0].outputs.text
    outputs[0].outputs[0].text += "!"
    [verdict] = on_a_loop(daemon, lambda llm: llm.verify(outputs[:1]))
    assert (verdict.status, verdict.had, verdict.draws) == ("differs", text + "!", text)


def on_a_loop(daemon, work):
    """What an attached AsyncLLM's work gives."""

    async def run():
        async with AsyncLLM("pocket", connect=str(daemon.address), quiet=True) as llm:
            return await work(llm)

    return asyncio.run(run())


def test_an_abort_leaves_what_there_is(daemon):
    endless = SamplingParams(max_tokens=400, ignore_eos=True, n=8)

    async def cut(llm):
        last, worker = None, worker_of(daemon)  # which is there as soon as somebody has attached
        async for piece in llm.stream("Count", endless):
            if last is None and not piece.finished:
                with stopped(worker):  # so that it isn't answered before it is aborted
                    if (await llm.stats()).running:
                        await llm.abort(piece.request_id)
                        await llm.stats()  # the daemon takes the abort before it
            last = piece
        return last

    # It may have ended before the worker stood still: then it is asked again.
    last = next(last for last in (on_a_loop(daemon, cut) for _ in range(50)) if last.error_code != 200)
    assert last.error_code == 499 and last.finished


def test_ctrl_c_carries_what_has_finished(daemon, monkeypatch):
    take, taken = AttachedRequest.take, []

    def interrupted(request):
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(request.position)
        return take(request)

    with daemon.attach() as llm:
        next(started := llm.generate_iter(["a", "b"], GREEDY))
        monkeypatch.setattr(AttachedRequest, "take", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            llm.generate(["Hello", "Hello", "Hello"], GREEDY, use_tqdm=False)
        started.close()
    assert [output.error_code for output in stopped.value.results] == [200, 200]


def test_options_that_differ_are_named_and_it_says_who_holds_the_model_and_that_it_is_closed_alone(daemon, attached):
    with pytest.raises(ConfigError, match=r"max_model_len=128 \(here 512\)"):
        daemon.attach(max_model_len=128)
    with pytest.raises(ConfigError, match="serves no model 'another'; it serves pocket"):
        daemon.attach("another")
    with pytest.raises(ConfigError, match="serves no model 'pockt'; it serves pocket. Did you mean pocket?"):
        daemon.attach("pockt")
    with daemon.attach(max_model_len=512, block_size=32, seed=9):
        pass
    llm = daemon.attach()
    assert repr(llm).startswith("<LLM 'pocket': ready, cpu (")
    assert repr(llm).endswith(f", held by the daemon at {daemon.address}>")
    llm.close()
    assert repr(llm).startswith("<LLM 'pocket': closed, cpu (")
    with pytest.raises(ClosedError):
        llm.generate(["x"])
    assert attached.generate(["Hello"], GREEDY, use_tqdm=False)[0].error_code == 200
