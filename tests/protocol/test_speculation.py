"""`speculative_config`: what may be written for it, what it means, and that what would change answers is refused."""

import json
import os

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as some

from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.foreign_options import notices
from penstock.protocol.options.foreign_speculation import IDLE, REFUSED, RENAMED
from penstock.protocol.options.speculation import METHODS, Speculation

NUMBERS = {
    "num_speculative_tokens": (1, 1024), "prompt_lookup_min": (1, 1024), "prompt_lookup_max": (1, 1024),
    "suffix_decoding_max_tree_depth": (1, 1024), "suffix_decoding_max_cached_requests": (-1, 2**31 - 1),
}  # fmt: skip
SHARES = {"suffix_decoding_max_spec_factor": (0.0, 1e300), "suffix_decoding_min_token_prob": (0.0, 1.0)}
KEYS = sorted({*Speculation.__struct_fields__, *RENAMED, *IDLE, *REFUSED, "num_model_steps"})

numbers = some.integers() | some.floats() | some.booleans()
anything = some.recursive(
    some.none() | numbers | some.text(max_size=9) | some.sampled_from(METHODS) | some.binary(max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def speculation(value: object) -> Speculation | None:
    return EngineConfig.from_options("m", speculative_config=value).speculative_config


def attempt(value: object) -> tuple[Speculation | None, str]:
    try:
        return speculation(value), ""
    except ConfigError as error:
        return None, str(error)


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


@given(some.sampled_from(sorted({**NUMBERS, **SHARES})), numbers)
def test_a_number_is_taken_within_its_bounds_alone(key, number):
    least, most = (NUMBERS | SHARES)[key]
    is_number = not isinstance(number, bool) and (key in SHARES or isinstance(number, int))
    found, refusal = attempt({"method": "ngram", key: number})
    assert bool(refusal) is not (is_number and least <= number <= most)
    taken = float(number) if key in SHARES and not refusal else None if number == -1 else number
    assert f"{key}=" in refusal if refusal else getattr(found, key) == taken


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
    ("acceptance_method", "typical_acceptance_sampler"), ("rejection_sample_method", "synthetic"),
    ("rejection_sample_method", "fly"), ("posterior_threshold", 0.09), ("benchmark_mode", True),
])  # fmt: skip
def test_any_other_rule_of_acceptance_is_refused_because_it_would_change_answers(key, value):
    with pytest.raises(ConfigError, match=f"{key}=.*would change answers"):
        speculation({"method": "suffix", key: value})


@for_each("written, words", [
    ({}, "says nothing"), ({"method": "replay"}, "needs a file"), ({"method": "draft_model"}, "needs a model"),
    ({"method": "suffix", "model": "m"}, "is for draft_model, mtp or eagle3"), ({"methd": "suffix"}, "mean method?"),
    ({"method": "eagle"}, "mean eagle3?"), ({"prompt_lookup_min": 4, "prompt_lookup_max": 3}, "is more than"),
    ({"prompt_lookup_max": 3, "max_ngram_size": 4}, "another name"),
])  # fmt: skip
def test_a_wrong_combination_says_what_is_wrong(written, words):
    with pytest.raises(ConfigError, match=words):
        speculation(written)


def test_an_earlier_run_must_be_there_to_be_replayed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for missing, why in (("none.jsonl", "can't be read"), (".", "is not a file"), ("pipe", "is not a file")):
        with pytest.raises(ConfigError, match=why):
            speculation({"file": missing})
    (tmp_path / "last.jsonl").touch()
    (tmp_path / "half.jsonl.journal").touch()  # of a job that isn't done
    for name in ("last.jsonl", "half.jsonl"):
        assert speculation({"file": name}) == Speculation(method="replay", file=str(tmp_path / name))


def test_what_has_no_effect_is_said():
    given = {"method": "suffix", "revision": "main", "code_revision": "main", "max_ngram_size": 4}
    assert notices({"speculative_config": given}) == [
        "speculative_config: revision, code_revision have no effect: what drafts is loaded and split as the model is.",
        "speculative_config: max_ngram_size has no effect: the method is suffix, and not ngram.",
    ]
    asked_as_well = {"method": "draft_model", "model": "m", "suffix_decoding_max_spec_factor": 4.0}
    assert notices({"speculative_config": asked_as_well}) == []
