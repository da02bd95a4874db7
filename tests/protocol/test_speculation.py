"""`speculative_config`: what may be written for it, what it means, and that what would change answers is refused."""

import json
import math
import os

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.foreign_options import notices
from penstock.protocol.options.foreign_speculation import FOREIGN_KEYS
from penstock.protocol.options.speculation import METHODS, SpeculativeConfig

NUMBERS = {
    "num_speculative_tokens": (1, 1024), "prompt_lookup_min": (1, 1024), "prompt_lookup_max": (1, 1024),
    "suffix_decoding_max_tree_depth": (2, 1024), "suffix_decoding_max_cached_requests": (-1, 2**31 - 1),
}  # fmt: skip
SHARES = {"suffix_decoding_max_spec_factor": (5e-324, 1e300), "suffix_decoding_min_token_prob": (0.0, 1.0)}
KEYS = sorted({*SpeculativeConfig.__struct_fields__, *FOREIGN_KEYS, "num_model_steps"})

numbers = some.integers() | some.floats() | some.booleans()
anything = some.recursive(
    some.none() | numbers | some.text(max_size=9) | some.sampled_from(METHODS) | some.binary(max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def speculation(value: object) -> SpeculativeConfig | None:
    return EngineConfig.from_options("m", speculative_config=value).speculative_config


def attempt(value: object) -> tuple[SpeculativeConfig | None, str]:
    try:
        return speculation(value), ""
    except ConfigError as error:
        return None, str(error)


@settings(max_examples=50)
@given(anything | some.dictionaries(some.sampled_from(KEYS) | some.text(max_size=5), anything, max_size=5))
def test_any_value_is_refused_in_a_sentence_or_reads_the_same_after_each_way(value):
    found, refusal = attempt(value)
    if refusal:
        assert refusal.startswith("speculative_config") and refusal.endswith((".", "?"))
        return
    config = EngineConfig(model="m", speculative_config=found)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig) == config
    if found is not None:  # to a daemon it goes as a mapping
        assert speculation(found) == found == speculation(msgspec.to_builtins(found))
        assert speculation(json.dumps(msgspec.to_builtins(found))) == found
    assert all(" no effect: " in each for each in notices({"speculative_config": value}))


@given(some.sampled_from(sorted({**NUMBERS, **SHARES})), numbers, some.sampled_from(["ngram", "suffix", "off"]))
def test_a_number_is_taken_within_its_bounds_alone_and_kept_by_the_methods_that_read_it(key, number, method):
    least, most = (NUMBERS | SHARES)[key]
    is_number = not isinstance(number, bool) and (key in SHARES or isinstance(number, int))
    found, refusal = attempt({"method": method, key: number})
    assert bool(refusal) is not (is_number and least <= number <= most)
    if refusal:
        assert f"{key}=" in refusal
    elif method == "suffix" and key.startswith("suffix"):
        assert getattr(found, key) == (float(number) if key in SHARES else None if number == -1 else number)
    elif method == "off" or key.startswith("suffix"):
        assert found == SpeculativeConfig(method=method)


@for_each("written, method", [
    (True, None), ("auto", None), (None, None), (False, "off"), ("off", "off"), ({"method": "naive"}, "off"),
    ("suffix", "suffix"), ({"model": "suffix"}, "suffix"), ('{"method": "NGRAM"}', "ngram"),
    ({"method": "ngram_match", "max_ngram_size": 4}, "ngram"), ({"model": "[ngram]"}, "ngram"),
    ({"method": "ernie_mtp"}, "mtp"), ({"method": "qwen3_next_mtp", "num_speculative_tokens": None}, "mtp"),
    ({"model": "some/draft"}, "draft_model"), ({"method": "eagle3", "model": "some/heads"}, "eagle3"),
    ({"method": "mtp", "verify_strategy": "target_match", "accept_policy": "normal", "model": "some/mtp"}, "mtp"),
    ({"method": "suffix", "rejection_sample_method": "standard", "benchmark_mode": False}, "suffix"),
])  # fmt: skip
def test_a_method_is_meant_by_every_engines_name_for_it(written, method):
    found = speculation(written)
    assert (None if found is None else found.method) == method


def test_earlier_options_of_vllm_and_fastdeploys_keys_mean_ours():
    older = {"speculative_model": "[ngram]", "num_speculative_tokens": 4, "ngram_prompt_lookup_max": 3}
    assert EngineConfig.from_options("m", **older).speculative_config == speculation(
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
    )
    with pytest.raises(ConfigError, match="give one of them"):
        EngineConfig.from_options("m", **older, speculative_config="suffix")
    steps = {"method": "mtp", "num_model_steps": 2}
    assert speculation(steps).num_speculative_tokens == 2
    assert speculation({**steps, "num_speculative_tokens": 5}).num_speculative_tokens == 5
    lookup = speculation({"method": "ngram", "min_ngram_size": 7})
    assert (lookup.prompt_lookup_min, lookup.prompt_lookup_max) == (7, 7)


@for_each("key, value", [
    ("verify_strategy", "topp"), ("verify_strategy", "greedy"), ("accept_policy", "accept_all"),
    ("acceptance_method", "typical_acceptance_sampler"), ("verify_strategy", "TopP"),
    ("rejection_sample_method", "synthetic"), ("rejection_sample_method", "fly"),
    ("posterior_threshold", 0.09), ("benchmark_mode", True),
])  # fmt: skip
def test_any_other_rule_of_acceptance_is_refused_because_it_would_change_answers(key, value):
    with pytest.raises(ConfigError, match=f"{key}=.*would change answers"):
        speculation({"method": "suffix", key: value})


@for_each("written, words", [
    ({}, "says nothing"), ({"method": "replay"}, "needs a file"), ({"method": "draft_model"}, "needs a model"),
    ({"methd": "suffix"}, "mean method?"), ("{method: suffix}", "not JSON: .*line 1 column 2"),
    ({"method": "eagle"}, "mean eagle3?"), ({"prompt_lookup_min": 4, "prompt_lookup_max": 3}, "is more than"),
    ({"prompt_lookup_max": 3, "max_ngram_size": 4}, "max_ngram_size is another name of prompt_lookup_max"),
    ({"max_ngram_size": math.nan}, "must be a whole number from 1 to 1024"),
    ({"suffix_decoding_max_spec_factor": math.nan}, "must be a finite number above 0"),
    ({"accept_policy": "reject_all"}, "speculative_config=False"), ({"accept_policy": "norml"}, "Did you mean normal?"),
    ({"verify_strategy": "greddy"}, "must be target_match"), ({"verify_strategy": 3}, "must be target_match"),
    ({"benchmark_mode": "yes"}, "must be False"), ({"parallel_drafting": "maybe"}, "must be True or False"),
    ({"draft_tensor_parallel_size": -3}, "must be a whole number, 1 or more"), ({"revision": 3}, "must be a string"),
    ({"method": "suffix", "model": 5}, "must be a folder"), ({"method": "mtp", "file": 5}, "must be the path"),
])  # fmt: skip
def test_a_wrong_combination_says_what_is_wrong(written, words):
    with pytest.raises(ConfigError, match=words):
        speculation(written)


class Failing:
    """A caller's object of which nothing can be asked."""

    __hash__ = None  # type: ignore[assignment]

    def _fail(self, *of: object) -> bool:
        raise ZeroDivisionError

    __eq__ = __bool__ = __str__ = __repr__ = __fspath__ = __len__ = __iter__ = _fail  # type: ignore[assignment]


@for_each("key", [key for key in KEYS if key != "sharing_model"])
def test_an_object_whose_methods_fail_is_refused_in_a_sentence(key):
    for written in (Failing(), {key: Failing()}):
        with pytest.raises(ConfigError, match="^speculative_config.*<(Failing|dict)>"):
            speculation(written)


def test_text_means_what_the_value_of_that_name_means():
    for word, value in (("true", True), ("True", True), ("false", False), ("null", None), ("None", None)):
        assert speculation(word) == speculation(value)
    with pytest.raises(ConfigError, match="is not JSON: key 'method' twice"):
        speculation('{"method": "suffix", "method": "off"}')


def test_an_earlier_run_must_be_there_to_be_replayed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for missing, why in (("none.jsonl", "can't be read"), (".", "is not a file"), ("pipe", "is not a file")):
        with pytest.raises(ConfigError, match=why):
            speculation({"file": missing})
        for method in ("off", "suffix"):  # which read none
            assert speculation({"method": method, "file": missing}) == SpeculativeConfig(method=method)
    (tmp_path / "last.jsonl").touch()
    (tmp_path / "half.jsonl.journal").touch()  # of a job that isn't done
    for name in ("last.jsonl", "half.jsonl"):
        assert speculation({"file": name}) == SpeculativeConfig(method="replay", file=str(tmp_path / name))


def test_what_has_no_effect_is_said():
    given = {"method": "suffix", "revision": "main", "code_revision": "main", "max_ngram_size": 4}
    assert notices({"speculative_config": given}) == [
        "speculative_config: revision, code_revision have no effect: what drafts is loaded and split as the model is.",
        "speculative_config: max_ngram_size has no effect: the method is suffix, and not ngram.",
    ]
    asked_as_well = {"method": "draft_model", "model": "m", "suffix_decoding_max_spec_factor": 4.0}
    assert notices({"speculative_config": asked_as_well}) == []
    given = {"method": "suffix", "model": "some/draft", "num_speculative_tokens_per_batch_size": [[1, 4, 5]]}
    given |= {"suffix_decoding_corpus_tokens": 1000, "spec_token_tree": "[(0,), (0, 0)]"}
    assert speculation(given) == speculation("suffix")
    idle = ["model", "num_speculative_tokens_per_batch_size", "suffix_decoding_corpus_tokens", "spec_token_tree"]
    assert [each.split()[1] for each in notices({"speculative_config": given})] == idle
    assert notices({"speculative_config": SpeculativeConfig(method="suffix")}) == []
    for written, key in (
        ({"method": "mtp", "model": "/nonexistent"}, "model"), ({"method": "suffix", "model": "[ngram]"}, "model"),
        ({"method": "off", "num_speculative_tokens": 3}, "num_speculative_tokens"),
    ):  # fmt: skip
        assert [each.split()[1] for each in notices({"speculative_config": written})] == [key]
    assert notices({"speculative_config": {"method": "ngram", "model": "[ngram]"}}) == []
