"""Adapters of a served model are models by their own names, beside `lora_name`; and a tree that has died is told of."""

import asyncio
import os
import signal
from collections.abc import Iterator

import httpx
import openai
import pytest
from builders.adapters import adapter
from builders.served import Served, running_model, served
from builders.tiny_model import tiny_model
from builders.watching import tree_processes, wait_until

import penstock

ASKED = {"prompt": [5, 6, 7, 8], "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def adapted(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("adapted")
    tiny_model(folder / "model", "qwen3")
    written = adapter(folder / "adapter", folder / "model", strength=8.0)
    options = {"enable_lora": True, "max_model_len": 256, "kv_cache_memory": "32MiB"}
    with running_model(folder / "model", **options) as (llm, loop), served(llm, loop) as server:
        asyncio.run_coroutine_threadsafe(llm.load_lora("river", written), loop).result(30)
        yield server


@pytest.fixture
def client(adapted) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=adapted.address + "/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


def test_an_adapter_is_listed_with_the_model_that_it_belongs_to(client):
    cards = {card.id: card for card in client.models.list()}
    assert cards["river"].parent == "pocket" and not hasattr(cards["pocket"], "parent")


def test_its_name_as_the_model_asks_for_it(client, adapted):
    params = penstock.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, lora_name="river")
    asked = adapted.llm.generate([{"prompt_token_ids": [5, 6, 7, 8]}], params)
    [direct] = asyncio.run_coroutine_threadsafe(asked, adapted.loop).result(30)
    named = client.completions.create(model="river", **ASKED)
    assert named.model == "river" and named.choices[0].text == direct.outputs.text
    assert client.completions.create(model="pocket", **ASKED).choices[0].text != direct.outputs.text


def test_so_does_lora_name(client):
    extra = {"ignore_eos": True, "lora_name": "river"}
    by_field = client.completions.create(model="pocket", **{**ASKED, "extra_body": extra})
    assert by_field.choices[0].text == client.completions.create(model="river", **ASKED).choices[0].text


def test_an_adapter_that_is_not_loaded_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="lake", **ASKED)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="pocket", **{**ASKED, "extra_body": {"lora_name": "lake"}})


def test_a_tree_that_has_died_is_told_by_health_and_by_every_request(client, adapted):
    """The last of this file: its model is gone afterwards."""
    worker = next(pid for role, pid in tree_processes(adapted.llm).items() if "worker" in role)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: httpx.get(adapted.address + "/health", timeout=30).status_code == 503, 20, "health tells of it")
    with pytest.raises(openai.InternalServerError) as refused:
        client.completions.create(model="pocket", **ASKED)
    assert refused.value.status_code == 503 and "/" not in refused.value.message
    assert httpx.get(adapted.address + "/metrics").status_code == 200
