"""How evenly streamed answers come while a long prompt is computed beside them.

    python scripts/bench_streams.py [--quantization int8] [--prompt 32768]
        [--python vllm=/path/to/its/python] [--python llama.cpp=/path/to/its/python]

Eight answers are streamed, first alone, then while one prompt is computed, then alone again, for they have grown
meanwhile, on a random-weight Qwen3-0.6B. Prints the median and the 99th percentile of the time between two tokens of a
stream, and how long the prompt took alone and beside them. Every engine is a process of its own, one after another,
with its defaults; llama.cpp is driven as its server does, each step the streams' tokens and as much of the prompt as
fits into a batch of 2,048. `--models` takes models that `bench_peers.py --models` has prepared there.
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
ROOM_OF_SEQUENCE = 4096  # least of llama.cpp's, each of which has its own
LONGEST = 40_960  # tokens of a context
SHAPE = SHAPES["0.6b"]
PREPARED_BY = {"vllm": ("vllm", "Vllm"), "llama.cpp": ("llama_cpp", "LlamaCpp")}


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


async def stream_from_penstock(model: str, quantization: str, prompt: int, heard: float) -> dict[str, float]:
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
        await asyncio.sleep(heard)
        gaps.phase = "beside"
        beside = await whole_prompt()
        gaps.phase = "after"
        await asyncio.sleep(heard)
        gaps.phase = "end"
        if any(task.done() for task in listening):
            print("A stream ended before the prompt did.", file=sys.stderr)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    return gaps.figures(alone, beside)


def penstock(model: str, quantization: str, prompt: int, heard: float) -> dict[str, float]:
    return asyncio.run(stream_from_penstock(model, quantization, prompt, heard))


def vllm(model: str, quantization: str, prompt: int, heard: float) -> dict[str, float]:
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
    run(heard)
    gaps.phase = "beside"
    add("beside", prompt, 1)
    beside = run(awaited="beside")
    gaps.phase = "after"
    run(heard)
    return gaps.figures(alone, beside)


def llama_cpp(model: str, quantization: str, prompt: int, heard: float) -> dict[str, float]:
    from peers.llama_cpp import BATCH_TOKENS, Entry, LlamaCpp
    from peers.serve import Settings

    engine = LlamaCpp()
    engine.load(Path(model), Settings(quantization, len(os.sched_getaffinity(0)), prompt, STREAMS + 1))
    engine.make_room([(ids(max(prompt, ROOM_OF_SEQUENCE)), 1)] * (STREAMS + 1))
    newest: dict[int, tuple[int, int]] = {}  # each stream's last token and its position
    gaps = Gaps()

    def prompt_of(sequence: int, length: int) -> list[Entry]:
        return [(token, position, sequence, position == length - 1) for position, token in enumerate(ids(length))]

    def step(chunk: list[Entry]) -> None:
        streamed = [(token, position, stream, True) for stream, (token, position) in newest.items()]
        for sequence, token in engine.decode(streamed + chunk).items():
            if sequence < STREAMS:
                newest[sequence] = token, newest[sequence][1] + 1
                gaps.hear(sequence)

    def run(seconds: float) -> None:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            step([])

    def whole_prompt() -> float:
        start = time.perf_counter()
        left = prompt_of(STREAMS, prompt)
        while left:
            fits = BATCH_TOKENS - len(newest)
            step(left[:fits])
            left = left[fits:]
        return time.perf_counter() - start

    alone = whole_prompt()
    print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
    engine.clear()
    for stream in range(STREAMS):
        newest[stream] = engine.decode(prompt_of(stream, STREAM_PROMPT))[stream], STREAM_PROMPT
    run(3.0)
    gaps.phase = "before"
    run(heard)
    gaps.phase = "beside"
    beside = whole_prompt()
    gaps.phase = "after"
    run(heard)
    return gaps.figures(alone, beside)


ENGINES = {"penstock": penstock, "vllm": vllm, "llama.cpp": llama_cpp}


def prepared(folder: Path, engine: str, python: str, quantization: str, models: Path | None) -> Path:
    """The model as the engine loads it."""
    write_config(folder, {**SHAPE, "dtype": "bfloat16", "max_position_embeddings": LONGEST})
    if engine == "penstock":
        return folder
    model = models / "0.6b" / f"{engine}-{quantization}" if models else prepare(folder, engine, python, quantization)
    if not (model / "config.json").exists():
        return model
    lengthened = folder / "lengthened"
    lengthened.mkdir()
    for file in model.iterdir():
        (lengthened / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": LONGEST}
    (lengthened / "config.json").unlink()
    (lengthened / "config.json").write_text(json.dumps(config))
    return lengthened


def prepare(folder: Path, engine: str, python: str, quantization: str) -> Path:
    from peers.checkpoint import write_checkpoint

    write_checkpoint(folder / "checkpoint", "0.6b")
    module, name = PREPARED_BY[engine]
    code = (
        f"import sys; from pathlib import Path; from peers.{module} import {name}\n"
        f"{name}().prepare(*map(Path, sys.argv[1:3]), sys.argv[3])"
    )
    arguments = [str(folder / "checkpoint"), str(folder / "model"), quantization]
    subprocess.run([python, "-c", code, *arguments], check=True, cwd=Path(__file__).parent)
    return folder / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quantization", default="int8", choices=["int8", "int4", "none"])
    parser.add_argument("--prompt", type=int, default=32_768)
    parser.add_argument("--heard", type=float, default=20.0, help="seconds that the streams are heard by themselves")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), help="as default penstock and those of --python")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH")
    parser.add_argument("--models", type=Path, help="where bench_peers.py has prepared models")
    parser.add_argument("--run", nargs=2, metavar=("ENGINE", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        engine, model = arguments.run
        figures = ENGINES[engine](model, arguments.quantization, arguments.prompt, arguments.heard)
        print(json.dumps(figures), flush=True)
        return
    pythons = {"penstock": sys.executable} | dict(pair.split("=", 1) for pair in arguments.python)
    for engine in arguments.engines or pythons:
        print(engine, figures_of(engine, pythons[engine], arguments), flush=True)


def figures_of(engine: str, python: str, arguments: argparse.Namespace) -> str:
    with TemporaryDirectory() as folder:
        model = prepared(Path(folder), engine, python, arguments.quantization, arguments.models)
        command = [python, __file__, "--run", engine, str(model), "--quantization", arguments.quantization]
        command += ["--prompt", str(arguments.prompt), "--heard", str(arguments.heard)]
        environment = dict(os.environ)
        if engine == "vllm":
            code = "from peers.vllm import preloaded; print(':'.join(preloaded()))"
            found = subprocess.check_output([python, "-c", code], cwd=Path(__file__).parent, text=True)
            environment["LD_PRELOAD"] = found.strip()
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        return ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else "failed"


if __name__ == "__main__":
    main()
