"""The same requests through `penstock.allspark` and through `LLM`.

A tree for each. Through `penstock.allspark` one thread reads all queues in a loop, a `Get` each, until every answer has
ended; through `LLM` they are one batch. Also says how much of a core the loop's thread and the whole caller took.
"""

import time
from typing import Any

from penstock import LLM
from penstock.allspark import AsModelConfig, AsStatus, Engine

from ..harness import Quantization, ShapeName, answered, compare, median, prompts, random_model, random_weights

Shares = dict[str, list[float]]  # of a core


def run(
    requests: int = 64, tokens_in: int = 32, tokens_out: int = 32, quantization: Quantization = "int8",
    shape: ShapeName = "0.6b", rounds: int = 5,
) -> Any:  # fmt: skip
    asked, shares = prompts(requests, tokens_in), Shares(LLM=[], allspark=[], loop=[])
    options = random_weights(quantization, max_model_len=512)
    with random_model(shape) as folder, Engine() as engine:
        hidden = {name: options[name] for name in ("load_format", "enable_prefix_caching", "quiet")}
        config = AsModelConfig(
            model_name="bench", model_path=str(folder), compute_unit="CPU:0", engine_max_length=512,
            engine_max_batch=requests, quantization=options["quantization"], options=hidden,
        )  # fmt: skip
        assert engine.install_model(config) == engine.start_model("bench") == AsStatus.ALLSPARK_SUCCESS
        with LLM(folder, max_num_seqs=requests, **options) as llm:

            def through_llm() -> float:
                busy = time.process_time()
                taken = answered(llm, asked, tokens_out)
                shares["LLM"].append((time.process_time() - busy) / taken)
                return requests * tokens_out / taken

            def through_queues() -> float:
                return requests * tokens_out / read_queues(engine, asked, tokens_out, shares)

            ways = {"LLM": through_llm, "allspark": through_queues}
            found = compare(f"{requests} requests of {tokens_in} in, {tokens_out} out", ways, rounds, "tokens/s")
    print(", ".join(f"{name} took {median(each):.1%} of a core" for name, each in shares.items()))
    return found | shares


def read_queues(engine: Engine, asked: list[list[int]], tokens_out: int, shares: Shares) -> float:
    """Seconds until every queue has given its whole answer."""
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
    shares["loop"].append((time.thread_time() - thread) / (time.perf_counter() - reading))
    taken = time.perf_counter() - wall
    shares["allspark"].append((time.process_time() - process) / taken)
    assert count == len(asked) * tokens_out
    for _, handle, _ in started:
        engine.release_request("bench", handle)
    return taken
