"""`prefix_cache_ttl` through the real processes: an unused prefix is computed again, to the same answer."""

import time

import pytest
import replay
from builders.watching import wait_until

from penstock import LLM, SamplingParams
from penstock.protocol.messages import Allocate, MaskFrame, StepPlan, StepResult, Stop
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.recording import read_recording
from penstock.worker.start.start import Start

TTL = 0.5
PROMPT = [(11 * place) % 250 + 1 for place in range(100)]
OPTIONS = {"deterministic": True, "max_model_len": 256, "kv_cache_memory": "16MiB"}


@pytest.fixture(scope="module")
def outputs(model_folder, tmp_path_factory):
    """What a prompt got when its prefix was new, was found, and was over; and what was recorded meanwhile."""
    record = str(tmp_path_factory.mktemp("ttl") / "stream")
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=3)
    given = []
    with LLM(model_folder, prefix_cache_ttl=TTL, record=record, quiet=True, **OPTIONS) as llm:

        def ask() -> int:
            given.extend(llm.generate([PROMPT], params, use_tqdm=False))
            return given[-1].num_cached_tokens

        assert ask() == 0
        wait_until(lambda: ask() > 0, 60, "two requests came within the time")
        found = len(given) - 1
        time.sleep(TTL)
        ask()
    return [given[0], given[found], given[-1]], record


def test_a_prefix_whose_time_is_over_is_computed_again_and_answered_the_same(outputs):
    [new, found, over], _ = outputs
    assert [each.num_cached_tokens for each in (new, found, over)] == [0, 96, 0]
    answers = [(each.outputs.token_ids, each.outputs.logprobs) for each in (new, found, over)]
    assert answers[0] == answers[1] == answers[2]


def test_what_was_recorded_gives_the_same_tokens_without_a_clock(outputs, model_folder, tmp_path):
    config = EngineConfig.from_options(model_folder, **OPTIONS)
    start = Start(Launch(config, str(model_folder), str(model_folder), 2), 0, tmp_path)
    start.plan()
    recorded = list(read_recording(outputs[1], Allocate | StepPlan | MaskFrame | StepResult | Stop))
    assert not replay.replay(start, recorded)
    start.close()


def test_a_time_that_nothing_could_be_found_in_is_refused():
    for seconds in (0, -1, float("inf"), "soon"):
        with pytest.raises(ValueError, match="must be seconds, more than 0; unset, a prefix is kept"):
            EngineConfig.from_options("m", prefix_cache_ttl=seconds)
