"""`LLM.get_metrics()` after some requests, as a script for vLLM reads it."""

import asyncio

from builders.watching import loop_face

from penstock import SamplingParams
from penstock.frontend.metrics import Counter, Gauge, Histogram, Vector, metrics_of
from penstock.protocol.stats import Stats


def test_metrics_have_names_labels_and_the_figures_of_the_engine(stand_in, model_folder):
    before = stand_in.stats().generated_tokens
    stand_in.generate([[5, 6, 7]] * 4, SamplingParams(max_tokens=9, ignore_eos=True), use_tqdm=False)
    stats, metrics = stand_in.stats(), {each.name: each for each in stand_in.get_metrics()}
    assert all(each.labels == {"model_name": str(model_folder)} for each in metrics.values())
    generated, running = metrics["vllm:generation_tokens"], metrics["vllm:num_requests_running"]
    assert isinstance(generated, Counter) and generated.value == before + 36
    assert isinstance(running, Gauge) and running.value == 0
    steps = metrics["vllm:iteration_tokens_total"]
    assert isinstance(steps, Histogram) and steps.count == stats.steps == steps.buckets["+Inf"]
    assert list(steps.buckets.values()) == sorted(steps.buckets.values()) and steps.sum >= 36
    assert metrics["penstock_steps"].value == stats.steps
    assert [each.name for each in asyncio.run(loop_face(stand_in).get_metrics())] == list(metrics)


def test_accepted_drafts_are_a_vector_by_position():
    stats = Stats(
        0, 0, 1, 1, 3, 1, 0, 9, 0, drafts=2, draft_tokens=6, accepted_tokens=4, accepted_by_position=[2, 1, 1]
    )
    [taken] = [each for each in metrics_of(stats, "m") if isinstance(each, Vector)]
    assert (taken.name, taken.values) == ("vllm:spec_decode_num_accepted_tokens_per_pos", [2, 1, 1])
