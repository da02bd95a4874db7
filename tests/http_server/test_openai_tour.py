"""OpenAI's own client, of the current major version, walks through every endpoint: blocking, async, streaming."""

import asyncio
import json
import socket

import httpx
import openai
import pydantic
import pytest
from builders.watching import wait_until

QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
GREEDY = {"model": "pocket", "temperature": 0}


def test_models_are_listed(client):
    assert [card.id for card in client.models.list()] == ["pocket", "another-name"]


def test_one_model_is_looked_up_by_its_name(client):
    assert client.models.retrieve("another-name").id == "another-name"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/there")


def test_a_question_is_answered_and_its_tokens_are_counted(client):
    found = client.chat.completions.create(messages=QUESTION, **GREEDY)
    [choice] = found.choices
    assert choice.message.content.strip() == "5" and choice.finish_reason == "stop"
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_a_stream_holds_the_same_answer_and_ends_with_its_usage(client):
    whole = client.chat.completions.create(messages=QUESTION, **GREEDY)
    chunks = list(
        client.chat.completions.create(messages=QUESTION, stream=True, stream_options={"include_usage": True}, **GREEDY)
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (chunks[-2].choices[0].finish_reason, chunks[-1].choices) == ("stop", [])
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_several_samples_are_numbered_and_a_seed_repeats_them(client):
    def sampled():
        found = client.chat.completions.create(
            model="pocket", messages=QUESTION, n=3, temperature=1.5, seed=7, max_tokens=8
        )
        return [(choice.index, choice.message.content) for choice in found.choices]

    first = sampled()
    assert [index for index, _ in first] == [0, 1, 2]
    assert sampled() == first


def test_samples_of_a_stream_are_told_apart_by_their_index(client):
    texts = ["", "", ""]
    stream = client.chat.completions.create(
        model="pocket", messages=QUESTION, n=3, temperature=1.5, seed=7, max_tokens=8, stream=True
    )
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    whole = client.chat.completions.create(
        model="pocket", messages=QUESTION, n=3, temperature=1.5, seed=7, max_tokens=8
    )
    assert texts == [choice.message.content for choice in whole.choices]


def test_log_probabilities_come_with_every_token(client):
    found = client.chat.completions.create(messages=QUESTION, logprobs=True, top_logprobs=3, **GREEDY)
    content = found.choices[0].logprobs.content
    assert len(content) == found.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(each.logprob for each in token.top_logprobs)  # greedy


@pytest.mark.parametrize("is_streamed", [False, True])
def test_thoughts_come_apart_from_the_answer(client, is_streamed):
    sum_of_two = [{"role": "user", "content": "What is 487 + 256?"}]
    if is_streamed:
        deltas = [chunk.choices[0].delta for chunk in
                  client.chat.completions.create(messages=sum_of_two, stream=True, **GREEDY)]  # fmt: skip
        thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        text = "".join(delta.content or "" for delta in deltas)
    else:
        message = client.chat.completions.create(messages=sum_of_two, **GREEDY).choices[0].message
        thought, text = message.reasoning_content, message.content
    assert thought and "743" in text and "<think>" not in thought + text
    without = client.chat.completions.create(messages=sum_of_two, extra_body={"include_reasoning": False}, **GREEDY)
    assert not hasattr(without.choices[0].message, "reasoning_content")


def test_an_event_is_never_cut_where_it_is_sent(server):
    """`vllm bench serve` loses what comes in pieces that end within "data: ", and other clients may."""
    address = httpx.URL(server.address)
    body = json.dumps({"messages": QUESTION, "stream": True, **GREEDY}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n" % address.netloc
    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection((address.host, address.port), timeout=30) as connection:
        connection.sendall(head + body)
        with connection.makefile("rb") as answer:
            while answer.readline().strip():
                pass
            chunks = []
            while length := int(answer.readline(), 16):
                chunks.append(answer.read(length))
                answer.readline()
    assert chunks and all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)


def test_leaving_a_stream_ends_it_in_the_engine(client, server):
    stream = client.completions.create(
        prompt="What is", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}, **GREEDY
    )
    next(iter(stream))
    stream.close()
    wait_until(lambda: server.stats().running == 0, 2, "the request has ended")


def test_a_priority_of_nought_is_harmless(client):
    found = client.chat.completions.create(messages=QUESTION, extra_body={"priority": 0}, **GREEDY)
    assert found.choices[0].message.content.strip() == "5"


def test_a_stop_string_ends_an_answer(client):
    found = client.chat.completions.create(
        messages=[{"role": "user", "content": "Count from 1 to 5."}], stop=["3"], max_tokens=40, **GREEDY
    )
    assert "3" not in found.choices[0].message.content and found.choices[0].finish_reason in ("stop", "length")


def test_an_answer_has_the_shape_of_its_schema(client):
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    found = client.chat.completions.create(
        messages=QUESTION,
        response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
        max_tokens=60,
        **GREEDY,
    )
    assert isinstance(json.loads(found.choices[0].message.content)["sum"], int)


class Sum(pydantic.BaseModel):
    sum: int = pydantic.Field(ge=0, le=99)


def test_an_answer_is_read_into_a_class_of_the_client(client):
    found = client.chat.completions.parse(messages=QUESTION, response_format=Sum, max_tokens=60, **GREEDY)
    assert isinstance(found.choices[0].message.parsed, Sum)
    answered = client.responses.parse(
        model="pocket", input="What is 2 + 3?", text_format=Sum, max_output_tokens=60, temperature=0
    )
    assert isinstance(answered.output_parsed, Sum)


@pytest.mark.parametrize("kind", ["text", "json_object"])
def test_the_simpler_response_formats_work(client, kind):
    question = [{"role": "user", "content": "What is 2 + 3? Answer in JSON."}]
    found = client.chat.completions.create(
        messages=question, response_format={"type": kind}, max_tokens=40, stop=["}"], seed=3, n=2, **GREEDY
    )
    for choice in found.choices:
        assert choice.message.content and (kind == "text" or choice.message.content.lstrip().startswith("{"))


@pytest.mark.parametrize(
    "fields, holds",
    [
        ({"guided_choice": ["left", "right"]}, lambda text: text in ("left", "right")),
        ({"guided_regex": "[ab]{3}"}, lambda text: len(text) == 3 and set(text) <= {"a", "b"}),
        ({"structured_outputs": {"choice": ["up"]}}, lambda text: text == "up"),
        ({"guided_json": {"type": "boolean"}}, lambda text: isinstance(json.loads(text), bool)),
        ({"chat_template_kwargs": {"enable_thinking": False}, "top_k": 1, "min_p": 0.1}, lambda text: bool(text)),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_the_further_fields_of_other_servers_work(client, fields, holds):
    found = client.chat.completions.create(messages=QUESTION, extra_body=fields, max_tokens=30, **GREEDY)
    assert holds(found.choices[0].message.content), found.choices[0].message.content


def test_prompts_are_completed_side_by_side(client):
    found = client.completions.create(prompt=["One", [80, 836]], n=2, max_tokens=3, **GREEDY)
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert found.choices[0].text == found.choices[1].text
    assert found.usage.completion_tokens == 12


def test_an_echo_holds_the_prompt_and_its_log_probabilities(client):
    found = client.completions.create(prompt="What is", echo=True, logprobs=2, max_tokens=2, **GREEDY)
    [choice] = found.choices
    assert choice.text.startswith("What is")
    told = choice.logprobs
    assert told.token_logprobs[0] is None and all(value <= 0 for value in told.token_logprobs[1:])
    assert len(told.tokens) == found.usage.total_tokens
    assert told.text_offset == sorted(told.text_offset)


def test_an_echo_alone_generates_nothing(client):
    found = client.completions.create(prompt="What is", echo=True, logprobs=1, max_tokens=0, **GREEDY)
    assert found.choices[0].text == "What is" and found.usage.completion_tokens == 0
    assert len(found.choices[0].logprobs.tokens) == found.usage.prompt_tokens


def test_a_prompt_of_one_token_has_its_one_position_which_nothing_predicts(client):
    found = client.completions.create(prompt=[[40]], echo=True, logprobs=1, max_tokens=0, **GREEDY)
    assert found.choices[0].logprobs.token_logprobs == [None]
    found = client.completions.create(prompt=[[40]], extra_body={"prompt_logprobs": 1}, max_tokens=1, **GREEDY)
    assert found.choices[0].prompt_logprobs == [None]


def test_a_streamed_completion_is_the_whole_one(client):
    whole = client.completions.create(prompt=["What", "Where"], echo=True, max_tokens=6, **GREEDY)
    texts = ["", ""]
    for chunk in client.completions.create(prompt=["What", "Where"], echo=True, max_tokens=6, stream=True, **GREEDY):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_a_suffix_is_refused_clearly(client):
    with pytest.raises(openai.BadRequestError, match="suffix"):
        client.completions.create(model="pocket", prompt="a", suffix="b")


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="no model 'nobody'"):
        client.chat.completions.create(model="nobody", messages=QUESTION)


def test_the_async_client_asks_and_streams_at_once(server, client):
    async def main():
        async with openai.AsyncOpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0) as client:

            async def streamed(number):
                stream = await client.chat.completions.create(
                    messages=[{"role": "user", "content": f"What is {number} + 3?"}], stream=True, **GREEDY
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            async def whole(number):
                found = await client.chat.completions.create(
                    messages=[{"role": "user", "content": f"What is {number} + 3?"}], **GREEDY
                )
                return found.choices[0].message.content

            async def completed(number):
                chunks = await client.completions.create(prompt=f"{number} +", max_tokens=4, stream=True, **GREEDY)
                text = "".join([chunk.choices[0].text async for chunk in chunks])
                whole = await client.completions.create(prompt=f"{number} +", max_tokens=4, **GREEDY)
                return text == whole.choices[0].text

            async def responded():
                found = await client.responses.create(model="pocket", input="What is 2 + 3?", temperature=0)
                events = await client.responses.create(
                    model="pocket", input="What is 2 + 3?", temperature=0, stream=True
                )
                last = [event async for event in events][-1]
                return found.output_text == last.response.output_text

            assert "pocket" in [card.id async for card in client.models.list()]
            assert all(await asyncio.gather(responded(), *map(completed, range(3))))
            return await asyncio.gather(*map(streamed, range(8)), *map(whole, range(8)))

    answers = asyncio.run(main())
    assert answers[:8] == answers[8:]


def test_a_stream_that_its_task_leaves_ends_in_the_engine(server):
    async def main():
        async with openai.AsyncOpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0) as client:

            async def read():
                stream = await client.completions.create(
                    prompt="What is", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}, **GREEDY
                )
                async for _ in stream:
                    begun.set()

            begun = asyncio.Event()
            task = asyncio.create_task(read())
            await asyncio.wait_for(begun.wait(), 10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    wait_until(lambda: server.stats().running == 0, 2, "the request has ended")
