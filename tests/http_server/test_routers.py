"""What routers, dashboards and orchestrators read: metrics under vLLM's names, load, and readiness."""

import json
import re

import httpx
from builders.cases import for_each
from builders.served import served
from builders.watching import wait_until

from penstock.frontend.http.endpoints.state import Report
from penstock.frontend.http.metrics import HttpFigures, Metrics, RequestFigures, RequestTimer
from penstock.frontend.replicas.totals import NONE, total
from penstock.frontend.requests.budget import Budget
from penstock.protocol.outputs import RequestMetrics
from penstock.protocol.stats import Stats

# What each reader looks for, from its source: llm-d's metrics extractor, the router and the dashboards of vLLM's
# production stack, and vLLM's own dashboard of Grafana.
READ_BY = {
    "llm-d": "num_requests_waiting num_requests_running kv_cache_usage_perc cache_config_info",
    "production stack": "num_requests_running num_requests_waiting gpu_prefix_cache_hits_total "
    "gpu_prefix_cache_queries_total gpu_cache_usage_perc time_to_first_token_seconds_bucket "
    "e2e_request_latency_seconds_bucket e2e_request_latency_seconds_sum time_per_output_token_seconds_count",
    "Grafana": "e2e_request_latency_seconds_bucket prompt_tokens_total generation_tokens_total "
    "inter_token_latency_seconds_bucket request_time_per_output_token_seconds_bucket num_requests_running "
    "time_to_first_token_seconds_bucket kv_cache_usage_perc request_prompt_tokens_bucket request_success_total "
    "request_generation_tokens_bucket request_queue_time_seconds_sum request_decode_time_seconds_sum "
    "request_prefill_time_seconds_sum prefix_cache_queries_total prefix_cache_hits_total num_preemptions_total "
    "iteration_tokens_total_bucket request_inference_time_seconds_count prompt_tokens_cached_total",
}
OWN = ("requests_running", "requests_waiting", "kv_usage_ratio", "prefix_hit_tokens_total", "preemptions_total",
       "prompt_tokens_total", "generated_tokens_total", "time_to_first_token_seconds_count")  # fmt: skip
TEXT = {"model": "pocket", "prompt": "What is", "max_tokens": 5, "ignore_eos": True, "temperature": 0}


def figures(text: str) -> dict[str, float]:
    """Every sample by its name and labels; the format is checked on the way."""
    found: dict[str, float] = {}
    family, kinds = "", {}
    for line in text.splitlines():
        if comment := re.fullmatch(r"# (HELP|TYPE) ([a-zA-Z_:][\w:]*) (.+)", line):
            if comment[1] == "TYPE":
                family = comment[2]
                assert family not in kinds, f"{family} is there twice"
                kinds[family] = comment[3]
            continue
        sample = re.fullmatch(r'([a-zA-Z_:][\w:]*)(\{(?:\w+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
        assert sample is not None, line
        assert sample[1].removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") == family or (
            sample[1] == family
        )
        name = sample[1] + (sample[2] or "")
        assert name not in found, f"{name} is there twice"
        found[name] = float(sample[3])
    return found


def test_the_times_of_an_answer_are_those_of_its_parts_and_a_tokens_is_that_of_a_sample():
    counted = RequestFigures()
    times = RequestMetrics(0.0, 0.5, first_token_time=1.5, time_in_queue=0.5, model_execute_time=11.0)
    RequestTimer(counted).end(["stop", "length"], times, num_tokens=12)
    seconds = {
        name: each.total for name, each in counted.histograms.items() if name.startswith(("request_", "time_to"))
    }
    assert seconds.pop("request_seconds") > 0
    assert seconds == {
        "time_to_first_token_seconds": 1.5, "request_queue_seconds": 0.5, "request_prompt_seconds": 1.0,
        "request_answer_seconds": 10.0, "request_inference_seconds": 11.0, "request_seconds_per_token": 2.0,
        "request_prompt_tokens": 0, "request_generated_tokens": 12,
    }  # fmt: skip


def test_every_reader_finds_what_it_looks_for_and_the_figures_are_those_of_the_requests(http):
    before = figures(http.get("/metrics").text)
    for is_streamed in (False, True):
        assert http.post("/v1/completions", json={**TEXT, "n": 2, "stream": is_streamed}).status_code == 200
    text = http.get("/metrics").text
    now = figures(text)
    for reader, names in READ_BY.items():
        for name in names.split():
            labels = r'\{(\w+="[^"]*",)*model_name="pocket",engine="0"[,}]'
            assert re.search(rf"^vllm:{name}{labels}", text, re.M), f"{reader} looks for {name}"

    def grown(name: str, labels: str = "") -> float:
        key = f'vllm:{name}{{model_name="pocket",engine="0"{labels}}}'
        return now[key] - before.get(key, 0)

    assert grown("request_success_total", ',finished_reason="length"') == 4
    assert grown("generation_tokens_total") == 20
    for name in ("e2e_request_latency_seconds", "time_to_first_token_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens"):  # fmt: skip
        assert grown(name + "_count") == 2, name
    assert grown("request_generation_tokens_sum") == 20
    whole, parts = grown("e2e_request_latency_seconds_sum"), ("queue", "prefill", "decode")
    assert 0 < sum(grown(f"request_{part}_time_seconds_sum") for part in parts) <= whole
    for kind in ("draft", "accepted"):
        counted = now[f'penstock_{kind}_tokens_total{{model="pocket"}}']
        assert now[f'vllm:spec_decode_num_{kind}_tokens_total{{model_name="pocket",engine="0"}}'] == counted
    assert {f'penstock_{name}{{model="pocket"}}' for name in OWN} <= now.keys()
    for own, name in {"request_seconds": "e2e_request_latency_seconds",
                      "time_between_tokens_seconds": "inter_token_latency_seconds"}.items():  # fmt: skip
        assert now[f'penstock_{own}_sum{{model="pocket"}}'] == now[f'vllm:{name}_sum{{model_name="pocket",engine="0"}}']
    assert re.search(r'^vllm:cache_config_info\{.*block_size="32",num_gpu_blocks="\d+",.*\} 1$', text, re.M)


def test_adapters_and_accepted_drafts_have_the_labels_that_readers_expect_and_odd_names_are_escaped():
    stats = Stats(
        1, 2, 8, 5, 3, 9, 4, 9, 0, accepted_by_position=[2, 1], steps_by_tokens=[3, 0], step_tokens=3,
        max_loras=4, running_loras=["a", 'b"'], waiting_loras=["c\n"],
    )  # fmt: skip
    metrics = Metrics(Budget(1 << 20, 1 << 20))
    metrics.timer('odd "name"\\').end(["repetition"])
    text = metrics.figures(0).text({'odd "name"\\': stats}, {})
    labels = 'model_name="odd \\"name\\"\\\\",engine="0"'
    assert figures(text)[f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="1"}}'] == 1
    assert f'vllm:lora_requests_info{{{labels},max_lora="4",running_lora_adapters="a,b\\"",' in text
    assert 'waiting_lora_adapters="c\\n"} 1' in text
    assert figures(text)[f'vllm:request_success_total{{{labels},finished_reason="repetition"}}'] == 1
    assert "lora_requests_info" not in metrics.figures(0).text({"m": Stats(1, 2, 8, 5, 3, 9, 4, 9, 0)}, {})


@for_each("path", ("/load", "/v1/load", "/v1/loads"))
def test_routers_are_told_how_busy_the_models_are(http, path):
    told = http.get(path).json()
    [load] = told["loads"]
    assert load["model"] == "pocket" and load["max_running_requests"] == 16
    assert load["num_total_reqs"] == load["num_running_reqs"] + load["num_waiting_reqs"]
    assert 0 <= load["num_used_tokens"] <= load["max_total_num_tokens"] and 0 <= load["token_usage"] <= 1
    assert (told["dp_rank_count"], load["dp_rank"]) == (1, 0) and told["server_load"] >= 0


def test_each_of_several_trees_is_an_engine_and_a_rank_and_one_that_is_gone_has_no_sizes():
    stats = total([Stats(1, 0, 8, 4, 3, 9, 4, 9, 0, block_size=32, num_slots=4), NONE])
    found = figures(HttpFigures().text({"m": stats}, {}))
    assert [found[f'vllm:num_requests_running{{model_name="m",engine="{each}"}}'] for each in (0, 1)] == [1, 0]
    [sizes] = [name for name in found if name.startswith("vllm:cache_config_info")]
    assert 'engine="0",block_size="32",num_gpu_blocks="8"' in sizes
    told = json.loads(Report({"m": stats, "n": NONE}, HttpFigures(), 3).load().body)
    assert told["dp_rank_count"] == 2 and told["server_load"] == 3
    ranks = [(load["model"], load["dp_rank"], load["max_total_num_tokens"]) for load in told["loads"]]
    assert ranks == [("m", 0, 256), ("m", 1, 0), ("n", 0, 0)]


def test_what_several_servers_report_is_what_one_with_all_their_trees_would():
    several, metrics = [], Metrics(Budget(3, 3))
    for number, stats in enumerate((Stats(1, 0, 8, 4, 3, 9, 4, 9, 0), total([Stats(2, 1, 8, 4, 3, 9, 4, 9, 0), NONE]))):
        own = Metrics(Budget(1 + number, 1))
        for each in (own, metrics):
            each.timer("m").end(["stop"])
            each.count("/v1/completions", 200 + number)
        several.append(Report({"m": stats}, own.figures(number), number))
    found, wanted = figures(Report.total(several).metrics().body.decode()), figures(metrics.figures(1).text({}, {}))
    assert [found[f'vllm:num_requests_running{{model_name="m",engine="{each}"}}'] for each in range(3)] == [1, 2, 0]
    assert found['penstock_requests_running{model="m"}'] == 3 and found["penstock_http_waiting"] == 1
    times = {name for name in wanted if "seconds" in name and "count" not in name}
    assert {name: found[name] for name in wanted if name not in times} == {
        name: figure for name, figure in wanted.items() if name not in times
    }


def test_a_running_request_counts_as_load_and_one_whose_client_leaves_as_aborted(paced):
    with served(*paced) as server, httpx.Client(base_url=server.address, timeout=60) as http:
        body = {**TEXT, "max_tokens": 1500, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()  # the stream ends with it
            next(lines)

            def is_running() -> bool:
                told = httpx.get(server.address + "/load", timeout=60).json()
                [load] = told["loads"]
                return (told["server_load"], load["num_running_reqs"]) == (1, 1) and load["num_used_tokens"] >= 32

            wait_until(is_running, "it is load")
        aborted = 'vllm:request_success_total{model_name="pocket",engine="0",finished_reason="abort"}'
        wait_until(lambda: figures(http.get("/metrics").text).get(aborted) == 1, "it is counted")
        assert http.get("/load").json()["server_load"] == 0


def test_a_server_is_ready_without_a_key_while_its_models_are(server, paced, keys):
    assert httpx.get(server.address + "/ready", timeout=60).json() == {"status": "ok", "models": {"pocket": "ok"}}
    with served(*paced, **keys) as guarded:
        assert httpx.get(guarded.address + "/ready", timeout=60).status_code == 200
        for path in ("/load", "/v1/load", "/v1/loads"):
            assert httpx.get(guarded.address + path, timeout=60).status_code == 401
