"""The times between tokens of streamed answers while a long prompt is computed.

    scripts/benchmark streams --prompt 32768 --known 24576 --watched 240 --python vllm=PYTHON llama.cpp=PYTHON
    scripts/benchmark streams --prompt 4096 --arrivals 16 --every 1 --python vllm=PYTHON
    scripts/benchmark streams --picture

Eight answers are streamed, first alone, then while one prompt is computed, then alone again, for they have grown
meanwhile, on a random-weight Qwen3-0.6B. Prints the median and the 99th percentile of the time between two tokens of a
stream, and how long the prompt took alone and beside them. Every engine is a process of its own, one after another,
with its defaults. `--models` takes models that the scenario `peers` has prepared.

A long prompt beside streams takes long. `--watched` gives it up after so many seconds, and `--known` computes its
beginning before the streams start, so that a later part of it can be watched. With `--arrivals` several prompts come,
one every `--every` seconds, and the time until all have their first tokens is printed. `--picture` puts questions
about pictures in place of the prompt, one after another, beside four answers of Penstock alone, in Qwen3-VL-2B's shape.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.frontend.models.conversion import convert_model

from ..engines import ENGINES, OURS
from ..engines.streams import Course
from ..harness import Quantization
from ..machine import ROOT
from ..models import LONGEST_CONTEXT, SHAPES, write_checkpoint, write_config

WITH_PICTURES = "penstock beside pictures"
PREPARE = """
import sys
from importlib import import_module
from pathlib import Path
served = import_module(sys.argv[1])
next(each for each in vars(served).values() if isinstance(each, type) and each.__module__ == sys.argv[1])().prepare(
    *map(Path, sys.argv[2:4]), sys.argv[4])
"""


def run(
    quantization: Quantization = "int8", prompt: int = 32_768, heard: float = 20.0, known: int | None = None,
    watched: float = float("inf"), arrivals: int = 1, every: float = 1.0, engines: tuple[str, ...] = (),
    picture: bool = False, python: tuple[str, ...] = (), models: Path | None = None,
) -> Any:  # fmt: skip
    course = Course(quantization, 0 if picture else prompt, heard, known, watched, arrivals, every)
    pythons = {OURS: sys.executable, WITH_PICTURES: sys.executable} | dict(pair.split("=", 1) for pair in python)
    chosen = [WITH_PICTURES] if picture else engines or [name for name in pythons if name != WITH_PICTURES]
    found = {}
    for engine in chosen:
        with TemporaryDirectory() as folder:
            model = prepared(Path(folder), engine, pythons[engine], quantization, models)
            found[engine] = figures_of(engine, pythons[engine], model, course)
            print(engine, found[engine], flush=True)
    return found


def figures_of(engine: str, python: str, model: Path, course: Course) -> str:
    environment = dict(os.environ)
    if engine == "vllm":
        code = "from bench.engines.vllm import preloaded; print(':'.join(preloaded()))"
        found = subprocess.check_output([python, "-c", code], cwd=ROOT / "scripts", text=True)
        environment["LD_PRELOAD"] = found.strip()
    command = [python, "-m", "bench.engines.streams", engine, str(model), json.dumps(vars(course))]
    place, pipe = ROOT / "scripts", subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=place, stdout=pipe, text=True, start_new_session=True) as ran:
        assert ran.stdout is not None
        found = next((line.strip() for line in ran.stdout if line.startswith("{")), "failed")
        # Processes of other engines outlive the one that has told its figures, and hold its output open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)
    return found


def prepared(folder: Path, engine: str, python: str, quantization: str, models: Path | None) -> Path:
    """The model as the engine loads it."""
    if engine == WITH_PICTURES:
        from ..formats.sight_checkpoint import write_all_but_weights

        write_all_but_weights(folder)
        return folder
    write_config(folder, {**SHAPES["0.6b"], "dtype": "bfloat16", "max_position_embeddings": LONGEST_CONTEXT})
    if engine == OURS:
        return folder
    model = models / "0.6b" / f"{engine}-{quantization}" if models else prepare(folder, engine, python, quantization)
    return lengthened(model, folder / "lengthened") if (model / "config.json").exists() else model


def prepare(folder: Path, engine: str, python: str, quantization: str) -> Path:
    checkpoint, model = folder / "checkpoint", folder / "model"
    write_checkpoint(checkpoint, "0.6b")
    if engine == "llama.cpp":
        convert_model(checkpoint, checkpoint.with_suffix(".gguf"), quantization=None)
    words = [python, "-c", PREPARE, ENGINES[engine].module, str(checkpoint), str(model), quantization]
    subprocess.run(words, check=True, cwd=ROOT / "scripts")
    return model


def lengthened(model: Path, folder: Path) -> Path:
    """The same model for longer contexts."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": LONGEST_CONTEXT}
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    return folder
