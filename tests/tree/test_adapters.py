"""LoRA adapters in a real tree: loaded beside running requests, named by requests, unloaded when nobody uses them."""

import threading
from pathlib import Path

import pytest
from builders.adapters import adapter
from builders.tiny_model import tiny_model

from penstock import LLM, AdapterError, BeamSearchParams, ConfigError, ModelNotFoundError, SamplingParams
from penstock.frontend.jobs.head import differences, facts_of_model

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
ROOM = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 16}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = [[number, 5, 7 * number] + [9] * number for number in range(1, 9)]


@pytest.fixture(scope="module")
def roomy(model_folder, adapters):
    with LLM(model_folder, **ROOM, **OPTIONS) as llm:
        for name, folder in adapters.items():
            llm.load_lora(name, str(folder))
        yield llm


def answers(llm, names, prompts=PROMPTS):
    asked = [{"prompt_token_ids": ids, "lora_name": name} for ids, name in zip(prompts, names, strict=True)]
    outputs = llm.generate(asked, GREEDY, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200] * len(outputs), [output.error_msg for output in outputs]
    return [output.outputs.token_ids for output in outputs]


def test_requests_of_one_batch_have_their_own_adapters(roomy, llm):
    by_name = {name: answers(roomy, [name] * len(PROMPTS)) for name in ("first", "second", None)}
    assert by_name[None] == answers(llm, [None] * len(PROMPTS))
    assert by_name["first"] != by_name["second"] != by_name[None] != by_name["first"]
    mixed = [("first", None, "second")[number % 3] for number in range(len(PROMPTS))]
    assert answers(roomy, mixed) == [by_name[name][number] for number, name in enumerate(mixed)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, lora_name="first")
    [output] = roomy.generate([PROMPTS[0]], params, use_tqdm=False)
    assert output.outputs.token_ids == by_name["first"][0], "the name may stand in the parameters"


def test_a_beam_search_searches_under_its_adapter(roomy):
    asked = [{"prompt_token_ids": PROMPTS[2], "lora_name": name} for name in ("first", None)]
    narrow, wide = (
        roomy.beam_search(asked, BeamSearchParams(beam_width=width, max_tokens=12, ignore_eos=True), use_tqdm=False)
        for width in (1, 4)
    )
    assert [output.outputs.token_ids for output in narrow] == answers(roomy, ["first", None], [PROMPTS[2]] * 2)
    found = [{tuple(beam.token_ids) for beam in output.outputs} for output in wide]
    assert [len(beams) for beams in found] == [4, 4] and not found[0] & found[1]


def test_no_prefix_is_shared_between_adapters_nor_with_an_earlier_one_of_the_same_name(roomy, adapters):
    for name in ("first", "second", None):
        asked = {"prompt_token_ids": list(range(10, 120)), "lora_name": name}
        cached = [roomy.generate([asked], GREEDY, use_tqdm=False)[0].num_cached_tokens for _ in range(2)]
        assert cached[0] == 0 and cached[1] > 0
    prompt = [list(range(20, 100))]
    roomy.load_lora("third", adapters["first"])
    before = answers(roomy, ["third"], prompt)
    roomy.unload_lora("third")
    roomy.load_lora("third", adapters["second"])
    assert answers(roomy, ["third"], prompt) == answers(roomy, ["second"], prompt) != before
    roomy.unload_lora("third")
    assert roomy.list_loras() == ["first", "second"]


def test_a_jobs_head_knows_an_adapter_by_its_weights(roomy, adapters):
    facts = []
    for name in ("first", "second"):
        roomy.load_lora("third", adapters[name])
        facts.append(facts_of_model(roomy._session))
        roomy.unload_lora("third")
    [phrase] = differences(*facts)
    assert phrase.startswith("adapter third changed from ")
    [phrase] = differences(facts[0], facts_of_model(roomy._session))
    assert phrase.startswith("adapter third changed from ") and phrase.endswith(" to none")


def test_loading_goes_on_beside_running_requests_and_holds_up_nobody_but_those_that_name_it(
    model_folder, adapters, monkeypatch, tmp_path
):
    # The second one is read until all is asked, and the first request runs for longer than that.
    monkeypatch.setenv("PENSTOCK_FAULTS", f"worker.step=delay:0.1;worker.adapter=until:{tmp_path / 'go'}@2")
    with LLM(model_folder, **ROOM, **OPTIONS) as llm:
        llm.load_lora("first", adapters["first"])
        started = llm.stream(PROMPTS[0], SamplingParams(max_tokens=240, ignore_eos=True, lora_name="first"))
        next(started)
        loading = threading.Thread(target=llm.load_lora, args=("second", adapters["second"]))
        loading.start()
        with pytest.raises(AdapterError, match=r"'first' is in use by 1 .*abort") as caught:
            llm.unload_lora("first")
        assert caught.value.reason == "busy"
        named = [{"prompt_token_ids": [7, 8], "lora_name": name} for name in ("first", None, "second")]
        outputs = llm.generate(named, SamplingParams(max_tokens=2), use_tqdm=False)
        assert loading.is_alive() and [output.error_code for output in outputs] == [200, 200, 400]
        (tmp_path / "go").touch()
        loading.join(60)
        assert llm.list_loras() == ["first", "second"]
        started.close()


def test_an_adapter_that_cannot_be_loaded_leaves_the_others_as_they_are(roomy, llm, adapters, tmp_path):
    def refused(name, folder, reason, sentence):
        with pytest.raises(AdapterError, match=sentence) as caught:
            roomy.load_lora(name, folder)
        assert caught.value.reason == reason and isinstance(caught.value, ConfigError)

    refused("first", adapters["first"], "loaded", "'first' already")
    refused("third", tmp_path, "files", "adapter_config.json")
    roomy.load_lora("third", adapters["first"])
    refused("fourth", adapters["first"], "number", "3 adapters are loaded, and max_loras=3")
    for path, whole in (("/nowhere", "/nowhere"), ("~/nowhere", Path.home() / "nowhere"), ("no", Path.cwd() / "no")):
        with pytest.raises(ModelNotFoundError, match=f"no adapter at {whole}:"):
            roomy.load_lora("fourth", path)
    with pytest.raises(AdapterError, match="enable_lora=True"):
        llm.load_lora("first", adapters["first"])
    roomy.unload_lora("third")
    assert roomy.list_loras() == ["first", "second"]


def test_two_ranks_answer_as_one_and_fail_to_load_as_one(split, roomy, adapters, tmp_path):
    names = [("first", None, "second")[number % 3] for number in range(len(PROMPTS))]
    with pytest.raises(AdapterError, match="trained on another model"):
        split.load_lora("first", adapter(tmp_path / "a", tiny_model(tmp_path / "m", "qwen3", hidden_size=48)))
    for name, folder in adapters.items():
        split.load_lora(name, folder)
    assert answers(split, names) == answers(roomy, names)
    for name in adapters:
        split.unload_lora(name)
