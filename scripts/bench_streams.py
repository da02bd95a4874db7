"""How evenly streamed answers come while a long prompt is computed beside them.

    python scripts/bench_streams.py [--quantization int8] [--prompt 32768] [--known 24576] [--watched 240]
        [--python vllm=/path/to/its/python] [--python llama.cpp=/path/to/its/python]
    python scripts/bench_streams.py --picture

Eight answers are streamed, first alone, then while one prompt is computed, then alone again, for they have grown
meanwhile, on a random-weight Qwen3-0.6B. Prints the median and the 99th percentile of the time between two tokens of a
stream, and how long the prompt took alone and beside them. Every engine is a process of its own, one after another,
with its defaults; llama.cpp is driven as its server does, each step the streams' tokens and as much of the prompt as
fits into a batch of 2,048, all in one cache. `--models` takes models that `bench_peers.py --models` has prepared there.

A long prompt beside streams takes long. `--watched` gives it up after so many seconds, and `--known` computes its
beginning before the streams start, so that a later part of it can be watched. `--picture` puts questions about
pictures in place of the prompt, one after another, beside four answers of Penstock alone, in Qwen3-VL-2B's shape.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))

from bench_models import write_config
from peers.streams import SHAPE, STREAM_PROMPT, Course, Gaps, ids

STREAMS, ROOM = 8, 20_000  # tokens of an answer
STREAMS_BESIDE_PICTURES, PICTURES = 4, 4
ROOM_OF_STREAM = 4096  # in llama.cpp's cache
LONGEST = 40_960  # tokens of a context
PREPARED_BY = {"vllm": ("vllm", "Vllm"), "llama.cpp": ("llama_cpp", "LlamaCpp")}


async def stream_from_penstock(model: str, course: Course) -> dict[str, float]:
    from penstock import AsyncLLM, SamplingParams

    def params(count: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)

    form = None if course.quantization == "none" else course.quantization
    options = {"load_format": "dummy", "quantization": form, "max_model_len": max(course.prompt, ROOM) + 128}
    first, prompt = course.prompts()
    gaps = Gaps()
    async with AsyncLLM(model, kv_cache_memory="8GiB", quiet=True, **options) as llm:

        async def listen(number: int) -> None:
            async for _ in llm.stream(ids(STREAM_PROMPT), params(ROOM)):
                gaps.hear(number)

        async def completed(tokens: list[int], watched: float | None = None) -> float:
            start = time.perf_counter()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(llm.generate(tokens, params(1)), watched)
            return time.perf_counter() - start

        async def found_again(tokens: list[int]) -> int:
            """How many of them the prefix cache has."""
            before = (await llm.stats()).cached_tokens
            await completed(tokens, 1.0)
            return (await llm.stats()).cached_tokens - before

        await asyncio.sleep(30)  # its memory is touched in the background
        alone = await completed(first)
        print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
        listening = [asyncio.create_task(listen(number)) for number in range(STREAMS)]
        await asyncio.sleep(3)
        gaps.phase = "before"
        await asyncio.sleep(course.heard)
        gaps.phase = "beside"
        beside = await completed(prompt, course.watched)
        gaps.phase = "after"
        await asyncio.sleep(course.heard)
        gaps.phase = "end"
        if any(task.done() for task in listening):
            print("A stream ended before the prompt did.", file=sys.stderr)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        computed = await found_again(prompt)
    return gaps.figures(alone, beside, computed)


def penstock(model: str, course: Course) -> dict[str, float]:
    return asyncio.run(stream_from_penstock(model, course))


async def stream_beside_pictures(model: str, course: Course) -> dict[str, float]:
    from peers.sight.look import picture

    from penstock import AsyncLLM, SamplingParams

    def params(count: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)

    gaps = Gaps()
    form = None if course.quantization == "none" else course.quantization
    async with AsyncLLM(model, load_format="dummy", quantization=form, max_model_len=8192, quiet=True) as llm:

        async def listen(number: int) -> None:
            async for _ in llm.stream(ids(STREAM_PROMPT), params(8192 - STREAM_PROMPT)):
                gaps.hear(number)

        async def asked(*seeds: int) -> float:
            """Seconds that a picture takes."""
            start = time.perf_counter()
            for seed in seeds:
                question = {"type": "text", "text": "What is in the picture?"}
                content = [{"type": "image", "image": picture(seed)}, question]
                [output] = await llm.chat([{"role": "user", "content": content}], params(1))
                assert output.error_msg is None, output.error_msg
            return (time.perf_counter() - start) / len(seeds)

        await asyncio.sleep(20)  # its memory is touched in the background
        await asked(0)  # records its calls
        alone = await asked(1, 2)
        listening = [asyncio.create_task(listen(number)) for number in range(STREAMS_BESIDE_PICTURES)]
        await asyncio.sleep(3)
        gaps.phase = "before"
        await asyncio.sleep(course.heard)
        gaps.phase = "beside"
        beside = await asked(*range(3, 3 + PICTURES))
        gaps.phase = "after"
        await asyncio.sleep(course.heard)
        gaps.phase = "end"
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    return gaps.figures(alone, beside, None)


def penstock_beside_pictures(model: str, course: Course) -> dict[str, float]:
    return asyncio.run(stream_beside_pictures(model, course))


def vllm(model: str, course: Course) -> dict[str, float]:
    from peers.vllm import ENVIRONMENT

    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    os.environ.update(ENVIRONMENT, VLLM_CPU_OMP_THREADS_BIND=cores, VLLM_CPU_KVCACHE_SPACE="8")
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RequestOutputKind

    options = {"skip_tokenizer_init": True, "max_model_len": max(course.prompt, ROOM) + 128, "dtype": "bfloat16"}
    engine = LLM(model, max_num_seqs=64, **options).llm_engine

    def add(name: str, tokens: list[int], count: int) -> None:
        kind = RequestOutputKind.DELTA
        params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False, output_kind=kind)
        engine.add_request(name, {"prompt_token_ids": tokens}, params)

    gaps = Gaps()

    def run(until: float = float("inf"), awaited: str = "") -> float:
        start = time.perf_counter()
        while time.perf_counter() - start < until:
            for output in engine.step():
                if output.request_id == awaited:
                    return time.perf_counter() - start
                gaps.hear(output.request_id)
        return time.perf_counter() - start

    first, prompt = course.prompts()
    add("alone", first, 1)
    alone = run(awaited="alone")
    print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
    for number in range(STREAMS):
        add(f"stream {number}", ids(STREAM_PROMPT), ROOM)
    run(3.0)
    gaps.phase = "before"
    run(course.heard)
    gaps.phase = "beside"
    add("beside", prompt, 1)
    beside = run(course.watched, awaited="beside")
    engine.abort_request(["beside"])
    gaps.phase = "after"
    run(course.heard)
    return gaps.figures(alone, beside, None)


def llama_cpp(model: str, course: Course) -> dict[str, float]:
    from peers.llama_cpp import BATCH_TOKENS, Entry, LlamaCpp
    from peers.serve import Settings

    engine = LlamaCpp()
    engine.load(Path(model), Settings(course.quantization, len(os.sched_getaffinity(0)), course.prompt, STREAMS + 1))
    engine.make_common_room(STREAMS + 1, course.prompt + STREAMS * ROOM_OF_STREAM)
    newest: dict[int, tuple[int, int]] = {}  # each stream's last token and its position
    gaps = Gaps()

    def entries(sequence: int, tokens: list[int]) -> list[Entry]:
        return [(token, place, sequence, place == len(tokens) - 1) for place, token in enumerate(tokens)]

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

    def completed(tokens: list[int], known: int = 0, watched: float = float("inf")) -> tuple[float, int]:
        """Seconds, and how many of the tokens are computed."""
        start = time.perf_counter()
        left = entries(STREAMS, tokens)[known:]
        while left and time.perf_counter() - start < watched:
            fits = BATCH_TOKENS - len(newest)
            step(left[:fits])
            left = left[fits:]
        return time.perf_counter() - start, len(tokens) - len(left)

    first, prompt = course.prompts()
    known = course.known or 0
    alone, _ = completed(first)
    print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
    engine.forget(STREAMS, known)
    for stream in range(STREAMS):
        newest[stream] = engine.decode(entries(stream, ids(STREAM_PROMPT)))[stream], STREAM_PROMPT
    run(3.0)
    gaps.phase = "before"
    run(course.heard)
    gaps.phase = "beside"
    beside, computed = completed(prompt, known, course.watched)
    engine.forget(STREAMS)
    gaps.phase = "after"
    run(course.heard)
    return gaps.figures(alone, beside, computed)


ENGINES = {"penstock": penstock, "vllm": vllm, "llama.cpp": llama_cpp}
WITH_PICTURES = "penstock beside pictures"


def prepared(folder: Path, engine: str, python: str, quantization: str, models: Path | None) -> Path:
    """The model as the engine loads it."""
    if engine == WITH_PICTURES:
        from peers.sight.checkpoint import write_all_but_weights

        write_all_but_weights(folder)
        return folder
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
    parser.add_argument("--known", type=int, help="tokens of the prompt to compute before; 0: none")
    parser.add_argument("--watched", type=float, default=float("inf"), help="seconds of the prompt beside streams")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), help="as default penstock and those of --python")
    parser.add_argument("--picture", action="store_true", help="pictures instead of a prompt, of Penstock alone")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH")
    parser.add_argument("--models", type=Path, help="where bench_peers.py has prepared models")
    parser.add_argument("--run", nargs=3, metavar=("ENGINE", "MODEL", "COURSE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        engine, model, course = arguments.run
        stream = penstock_beside_pictures if engine == WITH_PICTURES else ENGINES[engine]
        print(json.dumps(stream(model, Course(**json.loads(course)))), flush=True)
        return
    if arguments.picture:
        print(figures_of(WITH_PICTURES, sys.executable, arguments), flush=True)
        return
    pythons = {"penstock": sys.executable} | dict(pair.split("=", 1) for pair in arguments.python)
    for engine in arguments.engines or pythons:
        print(engine, figures_of(engine, pythons[engine], arguments), flush=True)


def figures_of(engine: str, python: str, arguments: argparse.Namespace) -> str:
    with TemporaryDirectory() as folder:
        model = prepared(Path(folder), engine, python, arguments.quantization, arguments.models)
        chosen = {name: getattr(arguments, name) for name in Course.__dataclass_fields__}
        command = [python, __file__, "--run", engine, str(model), json.dumps(chosen)]
        environment = dict(os.environ)
        if engine == "vllm":
            code = "from peers.vllm import preloaded; print(':'.join(preloaded()))"
            found = subprocess.check_output([python, "-c", code], cwd=Path(__file__).parent, text=True)
            environment["LD_PRELOAD"] = found.strip()
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        return ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else "failed"


if __name__ == "__main__":
    main()
