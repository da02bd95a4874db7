"""What a tree did can be looked at: as a timeline, and as a stream of messages that gives the same tokens again."""

import json

import pytest
import replay

from penstock import LLM, OutOfMemoryError, SamplingParams
from penstock.protocol.messages import Allocate, MaskFrame, StepPlan, StepResult, Stop
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.recording import read_recording
from penstock.worker.start.start import Start


@pytest.fixture(scope="module")
def kept(model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    paths = {"trace": str(folder / "trace.json"), "record": str(folder / "stream")}
    with LLM(model_folder, max_model_len=128, kv_cache_memory="8MiB", quiet=True, **paths) as llm:
        params = SamplingParams(max_tokens=12, seed=1, ignore_eos=True, n=2)
        guided = SamplingParams(max_tokens=12, seed=1, guided_regex="[a-z]{4}, on the other hand")
        llm.generate([[1, 2, 3], [4] * 40, [5, 6]], [params, params, guided], use_tqdm=False)
    return paths


def test_a_trace_shows_the_work_of_every_process_on_one_clock(kept):
    with open(kept["trace"]) as file:
        events = json.loads(file.read().rstrip().rstrip(",") + "]")
    names = {event["args"]["name"]: event["pid"] for event in events if event["ph"] == "M"}
    assert names.keys() == {"worker 0", "engine", "detokenizer"}
    spans = {(event["pid"], event["name"]) for event in events if event["ph"] == "X"}
    assert spans >= {
        (names["worker 0"], "forward"),
        (names["worker 0"], "sample"),
        (names["engine"], "plan"),
        (names["engine"], "finish"),
        (names["detokenizer"], "detokenize"),
    }


def test_a_recorded_stream_gives_a_new_worker_the_same_tokens(kept, model_folder, tmp_path):
    config = EngineConfig.from_options(model_folder, max_model_len=128, kv_cache_memory="8MiB")
    start = Start(Launch(config, str(model_folder), str(model_folder), 2), 0, tmp_path)
    start.plan()
    messages = Allocate | StepPlan | MaskFrame | StepResult | Stop
    recorded = list(read_recording(kept["record"], messages))
    assert sum(entry.is_answer for entry in recorded) >= 12
    assert not replay.replay(start, recorded)
    start.close()


def test_a_failed_allocation_is_an_out_of_memory_error_in_the_caller(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.allocate=memory")
    with pytest.raises(OutOfMemoryError, match="kv_cache_memory"):
        LLM(model_folder, max_model_len=128, kv_cache_memory="8MiB", quiet=True)
