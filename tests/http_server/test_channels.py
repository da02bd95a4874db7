"""A tiny model of its own behind the server: gpt-oss's channels on their way to clients, and adapters by their names.

The model has gpt-oss's special tokens and a template in its manner, and a processor of logits makes it say a text.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import tokenizers
from builders.adapters import adapter
from builders.cases import for_each
from builders.later import Later
from builders.plugin_package import plugin_package
from builders.served import Served, running_model, served
from builders.tiny_model import tiny_model

import penstock
from penstock.frontend.http.loaded_model import LoadedModel

openai = Later("openai")

MARKS = ("<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>")
TEMPLATE = Path(__file__).parents[1] / "builders" / "chat_templates" / "gpt-oss.jinja"
SCRIPT = """
def script(vocab_size, arguments):
    if arguments is None:
        return None

    def step(tokens, num_prompt, logits):
        place = len(tokens) - num_prompt
        if place < len(arguments):
            logits[:] = -float("inf")
            logits[arguments[place]] = 0.0

    return step
"""

THOUGHT = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
FINAL = "<|channel|>final<|message|>It rains."
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]
FLAT = [{"type": "function", "strict": False, **WEATHER}]
QUESTION = [{"role": "user", "content": "Weather?"}]


def channels_model(folder: Path) -> Path:
    tiny_model(folder, "qwen3")
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens(list(MARKS))
    backend.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE.read_text(encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ends = [backend.token_to_id("<|return|>"), 2, backend.token_to_id("<|call|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("channels")
    hooks = {"penstock.logits_processors": {"script": "script"}}
    sys.path.append(str(package := plugin_package(folder / "site", "penstock_test_script", SCRIPT, hooks)))
    written = adapter(folder / "adapter", channels_model(folder / "model"), strength=8.0)
    options = {"max_model_len": 1024, "kv_cache_memory": "16MiB", "logits_processors": ["script"], "num_threads": 1,
               "enable_lora": True}  # fmt: skip
    try:
        with running_model(folder / "model", **options) as (llm, loop), served(llm, loop) as server:
            asyncio.run_coroutine_threadsafe(llm.load_lora("river", written), loop).result(60)
            yield server
    finally:
        sys.path.remove(str(package))


@pytest.fixture(scope="module")
def client(server) -> "Iterator[openai.OpenAI]":
    with openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def says(server, monkeypatch):
    """Make the model answer with a text; how many tokens that is."""
    door = server.llm._session.door

    def says(text: str) -> int:
        script = server.llm.get_tokenizer().encode(text, add_special_tokens=False)
        scripted = msgspec.structs.replace(door.defaults, logits_processors_args={"script": script})
        monkeypatch.setattr(door, "defaults", scripted)
        return len(script)

    return says


@pytest.fixture
def chat(client):
    return partial(client.chat.completions.create, model="pocket", messages=QUESTION)


@for_each("header", ["<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"])
def test_a_shape_holds_from_the_final_message_on(chat, says, header):
    says(THOUGHT + header)
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    [choice] = chat(response_format={"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}).choices
    assert choice.message.reasoning_content == "I look." and choice.finish_reason == "stop"
    assert json.loads(choice.message.content)["a"] in (1, 2)


@for_each("limits", [{"response_format": {"type": "json_object"}}, {"tool_choice": "required"}])
def test_a_call_is_free_of_the_shape_of_the_final_message(chat, says, limits):
    says(THOUGHT + CALL)
    [choice] = chat(tools=TOOLS, **limits).choices
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)


def test_a_response_has_thought_and_call_as_items_and_goes_on_from_them(client, says, monkeypatch):
    says(THOUGHT + CALL)
    found = client.responses.create(model="pocket", input="Weather?", tools=FLAT)
    assert [item.type for item in found.output] == ["reasoning", "function_call"]
    assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens
    call = found.output[1]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    with client.responses.stream(model="pocket", input="Weather?", tools=FLAT) as stream:
        streamed = [event.type for event in stream]
        assert [item.type for item in stream.get_final_response().output] == ["reasoning", "function_call"]
    assert "response.function_call_arguments.delta" in streamed
    says(FINAL + "<|return|>")
    items = [item.model_dump(exclude_none=True) for item in found.output]
    gave = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain"}
    prompts, render = [], LoadedModel.render
    monkeypatch.setattr(LoadedModel, "render", lambda *given: prompts.append(render(*given)) or prompts[-1])
    followed = client.responses.create(model="pocket", input=[*QUESTION, *items, gave], tools=FLAT)
    assert followed.output_text == "It rains."
    [prompt] = prompts
    assert prompt.endswith(
        "<|start|>assistant<|channel|>analysis<|message|>I look.<|end|>"
        '<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>'
        '<|start|>functions.weather to=assistant<|channel|>commentary<|message|>"Rain"<|end|><|start|>assistant'
    )


# --- adapters: models by their own names, beside `lora_name` ---------------------------------------------------------


def completed(client, model: str, **further) -> "openai.types.Completion":
    extra = {"ignore_eos": True, **further}
    return client.completions.create(model=model, prompt=[5, 6, 7, 8], max_tokens=6, temperature=0, extra_body=extra)


def test_an_adapter_is_asked_for_by_its_name_as_the_model_and_by_lora_name_while_it_is_loaded(client, server):
    cards = {card.id: card for card in client.models.list()}
    assert cards["river"].parent == "pocket" and not hasattr(cards["pocket"], "parent")
    params = penstock.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, lora_name="river")
    generated = server.llm.generate([{"prompt_token_ids": [5, 6, 7, 8]}], params)
    [direct] = asyncio.run_coroutine_threadsafe(generated, server.loop).result(60)
    named = completed(client, "river")
    assert named.model == "river" and named.choices[0].text == direct.outputs.text
    assert completed(client, "pocket").choices[0].text != direct.outputs.text
    assert completed(client, "pocket", lora_name="river").choices[0].text == direct.outputs.text
    with pytest.raises(openai.NotFoundError):
        completed(client, "lake")
    with pytest.raises(openai.BadRequestError):
        completed(client, "pocket", lora_name="lake")
