"""LoRA adapters of a shared model: whoever loads one loads it for all, and it outlives the processes."""

import json
import os
import signal
import urllib.request

import pytest
from builders.daemon import models, wait_for, worker_of

from penstock import AdapterError, SamplingParams

PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
ROOM = "enable_lora = true\n"


@pytest.fixture
def folder(tmp_path):
    """The worker that computes nothing reads nothing either."""
    folder = tmp_path / "polite"
    folder.mkdir()
    return folder


def asked(llm, name):
    return llm.generate([{"prompt_token_ids": [1, 2], "lora_name": name}], PARAMS, use_tqdm=False)[0].error_code


@pytest.fixture(scope="module")
def roomy(start_shared):
    """A daemon with room for adapters in one of its models, which leaves after a moment of quiet."""
    words = ("--http", "127.0.0.1:0", "--http-added")
    return start_shared(models("a", more=ROOM, keep_alive=0.3) + models("b"), *words)


def test_an_adapter_is_loaded_for_all_and_again_after_a_death(roomy, folder):
    with roomy.attach("a") as llm, roomy.attach("a") as other:
        llm.load_lora("polite", folder)
        assert other.list_loras() == ["polite"] and asked(other, "polite") == 200
        os.kill(worker_of(roomy), signal.SIGKILL)
        wait_for(lambda: roomy.model("a").restarts == 1, "its death is seen")
        wait_for(lambda: roomy.model("a").state == "ready", "it is started again")
        assert other.list_loras() == ["polite"] and asked(other, "polite") == 200
        other.unload_lora("polite")
        assert llm.list_loras() == [] and asked(llm, "polite") == 400


def test_what_cannot_be_loaded_says_why(roomy, folder):
    with roomy.attach("a") as llm:
        with pytest.raises(FileNotFoundError, match="There is no adapter at"):
            llm.load_lora("polite", "/nowhere")
        llm.load_lora("polite", folder)
        with pytest.raises(AdapterError, match="polite"):
            llm.load_lora("polite", folder)
        llm.unload_lora("polite")
    with roomy.attach("b") as llm, pytest.raises(AdapterError, match="enable_lora=True"):
        llm.load_lora("polite", folder)


def test_an_adapter_is_a_model_over_http_and_looking_at_models_leases_none(roomy, folder):
    http = roomy.status().http

    def named():
        with urllib.request.urlopen(f"{http}/v1/models") as response:
            return [card["id"] for card in json.load(response)["data"]]

    with roomy.attach("a") as llm:
        llm.load_lora("polite", folder)
        assert sorted(named()) == ["a", "b", "polite"]
    wait_for(lambda: named() and roomy.model("a").state == "unloaded", "looking keeps nothing loaded")
    body = json.dumps({"model": "polite", "prompt": [1, 2], "max_tokens": 4, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{http}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:  # loads its model, and it with that
        assert json.load(response)["usage"]["completion_tokens"] == 4
