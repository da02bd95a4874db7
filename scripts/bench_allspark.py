"""What DashInfer's face costs: the same requests through `penstock.allspark` and through `LLM`, in turns.

    python scripts/bench_allspark.py [--rounds 5] [--requests 64] [--tokens-out 32] [--quantization int8] [--shape 0.6b]

A random-weight Qwen3-0.6B shape, a tree for each. Through the face one thread reads all queues in a loop, a `Get` each,
until every answer has ended; through `LLM` they are one batch. Prints tokens per second, the median of the rounds'
ratios, and how much of a core the loop's thread and the whole caller took.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench_harness import machine, median
from bench_models import SHAPES, write_config

from penstock import LLM, SamplingParams
from penstock.allspark import AsModelConfig, AsStatus, Engine

OPTIONS: dict[str, Any] = {"load_format": "dummy", "enable_prefix_caching": False, "quiet": True}


class Round(NamedTuple):
    seconds: float
    loop_share: float  # of a core
    caller_share: float


def prompts(count: int, length: int) -> list[list[int]]:
    return [[(31 * row + place) % 4000 + 10 for place in range(length)] for row in range(count)]


def through_llm(llm: LLM, asked: list[list[int]], tokens_out: int) -> Round:
    params = SamplingParams(temperature=0, max_tokens=tokens_out, ignore_eos=True, detokenize=False)
    wall, process = time.perf_counter(), time.process_time()
    outputs = llm.generate(asked, params, use_tqdm=False)
    taken = time.perf_counter() - wall
    assert all(len(output.outputs.token_ids) == tokens_out for output in outputs), outputs[0].error_msg
    return Round(taken, 0.0, (time.process_time() - process) / taken)


def through_queues(engine: Engine, asked: list[list[int]], tokens_out: int) -> Round:
    config = {"do_sample": False, "early_stopping": False, "max_length": len(asked[0]) + tokens_out}
    wall, process = time.perf_counter(), time.process_time()
    started = [engine.start_request_ids("bench", None, ids, config) for ids in asked]
    assert all(status == AsStatus.ALLSPARK_SUCCESS for status, _, _ in started), started[0][0].message
    open_queues, count, thread = [queue for _, _, queue in started], 0, time.thread_time()
    reading = time.perf_counter()
    while open_queues:
        found = [(queue, queue.Get()) for queue in open_queues]
        count += sum(len(elements.ids_from_generate) for _, elements in found if elements is not None)
        open_queues = [queue for queue, elements in found if elements is not None]
    loop = (time.thread_time() - thread) / (time.perf_counter() - reading)
    taken = time.perf_counter() - wall
    assert count == len(asked) * tokens_out
    caller = (time.process_time() - process) / taken
    for _, handle, _ in started:
        engine.release_request("bench", handle)
    return Round(taken, loop, caller)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens-in", type=int, default=32)
    parser.add_argument("--tokens-out", type=int, default=32)
    parser.add_argument("--quantization", choices=("int8", "int4"), default="int8")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="0.6b")
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    asked, out = prompts(arguments.requests, arguments.tokens_in), arguments.tokens_out
    with TemporaryDirectory() as folder, Engine() as engine:
        write_config(Path(folder), {**SHAPES[arguments.shape], "dtype": "bfloat16"})
        config = AsModelConfig(
            model_name="bench", model_path=folder, compute_unit="CPU:0", engine_max_length=512,
            engine_max_batch=arguments.requests, quantization=arguments.quantization, options=OPTIONS,
        )  # fmt: skip
        assert engine.install_model(config) == engine.start_model("bench") == AsStatus.ALLSPARK_SUCCESS
        options = {"max_model_len": 512, "max_num_seqs": arguments.requests, **OPTIONS}
        with LLM(folder, quantization=arguments.quantization, **options) as llm:
            ways = {"LLM": lambda: through_llm(llm, asked, out), "face": lambda: through_queues(engine, asked, out)}
            report(ways, arguments.rounds, arguments.requests * out)


def report(ways: dict[str, Any], rounds: int, tokens: int) -> None:
    found: dict[str, list[Round]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        # In turns, and each of them first as often.
        for name in sorted(ways, reverse=bool(number % 2)):
            each = ways[name]()
            if number:  # the first round warms up
                found[name].append(each)
    for name, taken in found.items():
        seconds = median([each.seconds for each in taken])
        caller = median([each.caller_share for each in taken])
        print(f"{name}: {tokens / seconds:,.1f} tokens/s, the caller took {caller:.1%} of a core")
    ratios = [own.seconds / face.seconds for own, face in zip(found["LLM"], found["face"], strict=True)]
    loop = median([each.loop_share for each in found["face"]])
    print(f"face / LLM: {median(ratios):.3f} x the throughput; the loop of Gets took {loop:.1%} of a core")


if __name__ == "__main__":
    main()
