"""How evenly streamed answers come while a long prompt is computed beside them.

    python scripts/bench_streams.py [--quantization int8] [--prompt 32768] [--python vllm=/path/to/its/python]

Eight answers are streamed, first alone, then while one prompt is computed, then alone again, for they have grown
meanwhile, on a random-weight Qwen3-0.6B. Prints the median and the 99th percentile of the time between two tokens of a
stream, and how long the prompt took alone and beside them. Every engine is a process of its own, one after another,
with its defaults.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_models import SHAPES, write_config

STREAMS, STREAM_PROMPT, ROOM = 8, 64, 20_000  # tokens of a stream's prompt, and for its answer
ALONE = 20.0  # seconds that the streams are heard by themselves
SHAPE = SHAPES["0.6b"]


def ids(count: int) -> list[int]:
    return [random.randrange(10, SHAPE["vocab_size"]) for _ in range(count)]


class Gaps:
    """Times between tokens, by what happened meanwhile."""

    def __init__(self) -> None:
        self.phase = "start"
        self.seconds: dict[str, list[float]] = {}
        self._last: dict[Any, float] = {}

    def hear(self, stream: Any) -> None:
        now = time.perf_counter()
        if stream in self._last:
            self.seconds.setdefault(self.phase, []).append(now - self._last[stream])
        self._last[stream] = now

    def figures(self, prompt_alone: float, prompt_beside: float) -> dict[str, float]:
        found = {"prompt alone, s": prompt_alone, "prompt beside streams, s": prompt_beside}
        for phase in ("before", "beside", "after"):
            gaps = self.seconds[phase]
            found |= {f"{phase}: median, ms": median(gaps) * 1e3, f"{phase}: p99, ms": quantiles(gaps, n=100)[98] * 1e3}
            found[f"{phase}: longest, ms"] = max(gaps) * 1e3
        for phase in ("before", "after"):
            found[f"p99 beside : {phase}"] = found["beside: p99, ms"] / found[f"{phase}: p99, ms"]
        return {name: round(value, 2) for name, value in found.items()}


async def penstock(model: str, quantization: str, prompt: int) -> dict[str, float]:
    from penstock import AsyncLLM, SamplingParams

    def params(count: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)

    form = None if quantization == "none" else quantization
    options = {"load_format": "dummy", "quantization": form, "max_model_len": max(prompt, ROOM) + 128, "quiet": True}
    gaps = Gaps()
    async with AsyncLLM(model, kv_cache_memory="8GiB", **options) as llm:

        async def listen(number: int) -> None:
            async for _ in llm.stream(ids(STREAM_PROMPT), params(ROOM)):
                gaps.hear(number)

        async def whole_prompt() -> float:
            start = time.perf_counter()
            await llm.generate(ids(prompt), params(1))
            return time.perf_counter() - start

        await asyncio.sleep(30)  # its memory is touched in the background
        alone = await whole_prompt()
        print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
        listening = [asyncio.create_task(listen(number)) for number in range(STREAMS)]
        await asyncio.sleep(3)
        gaps.phase = "before"
        await asyncio.sleep(ALONE)
        gaps.phase = "beside"
        beside = await whole_prompt()
        gaps.phase = "after"
        await asyncio.sleep(ALONE)
        gaps.phase = "end"
        if any(task.done() for task in listening):
            print("A stream ended before the prompt did.", file=sys.stderr)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    return gaps.figures(alone, beside)


def vllm(model: str, quantization: str, prompt: int) -> dict[str, float]:
    from peers.vllm import ENVIRONMENT

    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    os.environ.update(ENVIRONMENT, VLLM_CPU_OMP_THREADS_BIND=cores, VLLM_CPU_KVCACHE_SPACE="8")
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RequestOutputKind

    options = {"skip_tokenizer_init": True, "max_model_len": max(prompt, ROOM) + 128, "dtype": "bfloat16"}
    engine = LLM(model, max_num_seqs=64, **options).llm_engine

    def add(name: str, length: int, count: int) -> None:
        kind = RequestOutputKind.DELTA
        params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False, output_kind=kind)
        engine.add_request(name, {"prompt_token_ids": ids(length)}, params)

    gaps = Gaps()

    def run(until: float = float("inf"), awaited: str = "") -> float:
        start = time.perf_counter()
        while time.perf_counter() - start < until:
            for output in engine.step():
                if output.request_id == awaited:
                    return time.perf_counter() - start
                gaps.hear(output.request_id)
        return until

    add("alone", prompt, 1)
    alone = run(awaited="alone")
    print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
    for number in range(STREAMS):
        add(f"stream {number}", STREAM_PROMPT, ROOM)
    run(3.0)
    gaps.phase = "before"
    run(ALONE)
    gaps.phase = "beside"
    add("beside", prompt, 1)
    beside = run(awaited="beside")
    gaps.phase = "after"
    run(ALONE)
    return gaps.figures(alone, beside)


def prepared(folder: Path, engine: str, python: str, quantization: str) -> Path:
    """The model as the engine loads it."""
    write_config(folder, {**SHAPE, "dtype": "bfloat16", "max_position_embeddings": 40960})
    if engine == "penstock":
        return folder
    from peers.checkpoint import write_checkpoint

    write_checkpoint(folder / "checkpoint", "0.6b")
    code = (
        "import sys; from pathlib import Path; from peers.vllm import Vllm\n"
        "Vllm().prepare(*map(Path, sys.argv[1:3]), sys.argv[3])"
    )
    model = folder / "model"
    arguments = [str(folder / "checkpoint"), str(model), quantization]
    subprocess.run([python, "-c", code, *arguments], check=True, cwd=Path(__file__).parent)
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 40960}
    (model / "config.json").write_text(json.dumps(config))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quantization", default="int8", choices=["int8", "int4", "none"])
    parser.add_argument("--prompt", type=int, default=32_768)
    parser.add_argument("--python", action="append", default=[], metavar="vllm=PATH")
    parser.add_argument("--run", nargs=2, metavar=("ENGINE", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        engine, model = arguments.run
        common = (model, arguments.quantization, arguments.prompt)
        figures = asyncio.run(penstock(*common)) if engine == "penstock" else vllm(*common)
        print(json.dumps(figures), flush=True)
        return
    pythons = {"penstock": sys.executable} | dict(pair.split("=", 1) for pair in arguments.python)
    for engine, python in pythons.items():
        with TemporaryDirectory() as folder:
            model = prepared(Path(folder), engine, python, arguments.quantization)
            command = [python, __file__, "--run", engine, str(model), "--quantization", arguments.quantization]
            environment = dict(os.environ)
            if engine == "vllm":
                code = "from peers.vllm import preloaded; print(':'.join(preloaded()))"
                found = subprocess.check_output([python, "-c", code], cwd=Path(__file__).parent, text=True)
                environment["LD_PRELOAD"] = found.strip()
            ran = subprocess.run(
                [*command, "--prompt", str(arguments.prompt)], env=environment, stdout=subprocess.PIPE, text=True
            )
            print(engine, ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else "failed", flush=True)


if __name__ == "__main__":
    main()
