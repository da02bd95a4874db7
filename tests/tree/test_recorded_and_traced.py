"""A tree's work can be looked at: as a timeline, and as a stream of messages that gives the same tokens again, though
a prefix was forgotten meanwhile because its time (`prefix_cache_ttl`) was over.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import replay
from builders.watching import stopped, tree_processes, wait_until

from penstock import LLM, SamplingParams
from penstock.protocol.messages import Allocate, MaskFrame, StepPlan, StepResult, Stop
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.recording import read_recording
from penstock.protocol.wire import column
from penstock.worker.start.start import Start

TTL = 0.5
PROMPT = [(11 * place) % 250 + 1 for place in range(100)]
OPTIONS = {"deterministic": True, "max_model_len": 128, "kv_cache_memory": "16MiB"}


@pytest.fixture(scope="module")
def kept(model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    paths = {"trace": str(folder / "trace.json"), "record": str(folder / "stream")}
    with LLM(model_folder, prefix_cache_ttl=TTL, quiet=True, **OPTIONS, **paths) as llm:
        params = SamplingParams(max_tokens=12, seed=1, ignore_eos=True, n=2)
        guided = SamplingParams(max_tokens=12, seed=1, guided_regex="[a-z]{4}, on the other hand")
        llm.generate([[1, 2, 3], [4] * 40, [5, 6]], [params, params, guided], use_tqdm=False)
        outputs = asked_again(llm)
    return paths, outputs


def asked_again(llm: LLM) -> list:
    """Ask the same prompt while its prefix is new, while it is found, and when its time is over."""
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=3)
    given = []

    def ask() -> int:
        given.extend(llm.generate([PROMPT], params, use_tqdm=False))
        return given[-1].num_cached_tokens

    assert ask() == 0
    wait_until(lambda: ask() > 0, "two requests came within the time")
    found = len(given) - 1
    time.sleep(TTL)
    ask()
    return [given[0], given[found], given[-1]]


def test_a_prefix_whose_time_is_over_is_computed_again_and_answered_the_same_and_a_time_without_any_is_refused(kept):
    _, outputs = kept
    assert [each.num_cached_tokens for each in outputs] == [0, 96, 0]
    answers = [(each.outputs.token_ids, each.outputs.logprobs) for each in outputs]
    assert answers[0] == answers[1] == answers[2]
    for seconds in (0, -1, float("inf"), "soon"):
        with pytest.raises(ValueError, match="must be seconds, more than 0; unset, a prefix is kept"):
            EngineConfig.from_options("m", prefix_cache_ttl=seconds)


def test_a_trace_shows_the_work_of_every_process_on_one_clock(kept):
    with open(kept[0]["trace"]) as file:
        events = json.loads(file.read().rstrip().rstrip(",") + "]")
    names = {event["args"]["name"]: event["pid"] for event in events if event["ph"] == "M"}
    assert names.keys() == {"front end", "worker 0", "engine", "detokenizer"}
    spans = {(event["pid"], event["name"]) for event in events if event["ph"] == "X"}
    assert spans >= {
        (names["worker 0"], "forward"),
        (names["worker 0"], "sample"),
        (names["engine"], "plan"),
        (names["engine"], "finish"),
        (names["detokenizer"], "detokenize"),
    }


def test_a_recorded_stream_gives_a_new_worker_the_same_tokens_without_a_clock(kept, model_folder, tmp_path):
    config = EngineConfig.from_options(model_folder, **OPTIONS)
    start = Start(Launch(config, str(model_folder), str(model_folder), 2), 0, tmp_path)
    start.plan()
    messages = Allocate | StepPlan | MaskFrame | StepResult | Stop
    recorded = list(read_recording(kept[0]["record"], messages))
    assert sum(entry.is_answer for entry in recorded) >= 36
    assert not replay.replay(start, recorded)
    [place, *_] = [place for place, entry in enumerate(recorded) if entry.is_answer and len(entry.message.sampled) == 4]
    for changed in ({"sampled": column([-1])}, {"num_sampled": column([2])}):
        other = recorded[place]._replace(message=msgspec.structs.replace(recorded[place].message, **changed))
        assert replay.replay(start, [*recorded[:place], other, *recorded[place + 1 :]]), changed
    start.close()


def test_a_long_prompt_next_to_a_stream_passes_through_layers_over_several_steps_and_is_answered_as_alone(
    model_folder, tmp_path
):
    prompt, params = PROMPT * 9, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=3)
    options = {**OPTIONS, "max_model_len": 1000, "enable_prefix_caching": False, "record": str(tmp_path / "stream")}
    with LLM(model_folder, quiet=True, **options) as llm:
        [alone] = llm.generate([prompt], params, use_tqdm=False)
        stream = llm.stream([5, 6, 7], SamplingParams(max_tokens=990, ignore_eos=True))
        next(stream)
        with ThreadPoolExecutor(1) as thread:
            with stopped(tree_processes(llm)["worker 0"]):  # the stream doesn't end before the prompt comes
                asked = thread.submit(llm.generate, [prompt], params, use_tqdm=False)
                wait_until(lambda: llm.stats().waiting + llm.stats().running == 2, "both are there")
            [found] = asked.result()
        stream.close()
    assert (found.outputs.token_ids, found.outputs.logprobs) == (alone.outputs.token_ids, alone.outputs.logprobs)
    messages = Allocate | StepPlan | MaskFrame | StepResult | Stop
    recorded = [entry.message for entry in read_recording(options["record"], messages)]
    plans = [each for each in recorded if isinstance(each, StepPlan)]
    assert any(layers.first_layer > 0 for plan in plans for layers in plan.layered)
