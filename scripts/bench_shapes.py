"""Models of any family beside llama.cpp and OpenVINO: published shapes, random weights, one sitting.

    python scripts/bench_shapes.py [--shapes qwen3-30b,olmoe,…] [--quantization int8,int4] [--peers penstock,llama.cpp]
        [--rounds 3] [--python llama.cpp=/path/to/its/python] [--output figures.json] [--models FOLDER]

Engines run and take turns as in `bench_peers.py`. Penstock makes its weights up while it loads, llama.cpp's files are
written directly in each of its formats (`peers/random_gguf.py`), so that no model is ever whole in floats; routers are
by chance as well. So weights differ between engines, which changes no speed. OpenVINO takes part where FOLDER holds its
export (`qwen3-30b-8/openvino-int8`). Beside the rates stand the bytes of weights that one token reads and, at
batch 1, what part of the bandwidth read in between that makes. A class is finished before the next is loaded.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench_peers import about, installed, machine_limits, named_path, names_of
from peers import ENGINES, Engine
from peers.random_gguf import active_bytes
from peers.report import conditions, disturbances, table
from peers.scenarios import SCENARIOS
from peers.shape import BESIDE_MXFP4, CONVOLUTION, DECAY, Shape, tensors, write_config
from peers.shapes import SHAPES
from peers.sitting import OURS, Contender, Plan, hold, say

# llama.cpp in formats that have no class of their own.
FURTHER = (
    Engine("llama.cpp Q4_K_M", "peers.llama_cpp", "llama_cpp", "llama-cpp-python", {"int4": "Q4_K_M"}),
    Engine(
        "llama.cpp MXFP4", "peers.llama_cpp", "llama_cpp", "llama-cpp-python", {"int4": "MXFP4", "mxfp4": "MXFP4"}
    ),
)  # fmt: skip
KNOWN = {engine.name: engine for engine in (*(ENGINES[name] for name in (OURS, "openvino", "llama.cpp")), *FURTHER)}
SCENARIOS_RUN = ("decode", "prefill_512", "batch_16")
SHORTER = ("batch_16_short",)  # for peers that would take minutes for the whole
BITS = {"int8": 8.0, "int4": 4.25}  # of a weight here, scales of groups included
CLASSES = (*BITS, *BESIDE_MXFP4)


def main() -> None:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # engines are ended on the way out
    record = {"machine": about(), "limits": machine_limits(arguments.threads), "threads": arguments.threads}
    record |= {"model": "Shapes", "layers": arguments.layers, "rounds": arguments.rounds, "shapes": {}}
    for shape in arguments.shapes:
        measure(shape, arguments, record)
    print(markdown(record))


def parse() -> argparse.Namespace:
    models = Path(tempfile.gettempdir()) / f"penstock-bench-shapes-{os.getuid()}"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", type=names_of(SHAPES), default=list(SHAPES), help="which, with commas")
    parser.add_argument("--layers", type=int, help="fewer (or more) than the shape's row has; of every shape")
    parser.add_argument("--peers", type=names_of(KNOWN), default=list(KNOWN), help="which engines, with commas")
    parser.add_argument("--scenarios", type=names_of((*SCENARIOS_RUN, *SHORTER)), default=list(SCENARIOS_RUN))
    parser.add_argument("--quantization", type=names_of(CLASSES), default=["int8", "int4"], help="which classes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds; a slower and losing run isn't repeated")
    parser.add_argument("--python", type=named_path, action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--models", default=models, help="folder for each engine's format of the models")
    parser.add_argument("--keep", action="store_true", help="leave the formats in that folder")
    parser.add_argument("--output", type=Path, help="the record, FILE.json; FILE.md beside it")
    return parser.parse_args()


def measure(shape: str, arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    """One shape in every class that was asked for."""
    model = cut(shape, arguments.layers)
    folder = Path(arguments.models) / f"{shape}-{model.layers}"
    plan = Plan(folder, model.config["vocab_size"], arguments.threads, arguments.rounds, 1, arguments.patience)
    classes = record["shapes"].setdefault(shape, {})
    for quantization in arguments.quantization:
        if quantization in BESIDE_MXFP4 and not model.is_mxfp4:
            say(f"{model.title} is not published in MXFP4, and left out of that class")
            continue
        write_config(folder / "checkpoint", model.in_class(quantization))
        contenders = installed([KNOWN[name] for name in arguments.peers], quantization, pythons(arguments.python))
        contenders = [one for one in contenders if is_ready(one, shape, model.layers, folder, quantization)]
        scenarios = [SCENARIOS[name] for name in arguments.scenarios]
        hold(plan, contenders, scenarios, quantization, partial(keep, arguments.output, record, classes, quantization))
        if not arguments.keep:
            for path in folder.glob(f"llama.cpp*-{quantization}"):
                shutil.rmtree(path)


def pythons(named: list[tuple[str, str]]) -> dict[str, str]:
    """By row: rows of one engine have one Python."""
    paths = dict(named)
    return {name: paths[base] for name in KNOWN if (base := name.split()[0]) in paths}


def cut(shape: str, layers: int | None) -> Shape:
    return SHAPES[shape].cut(layers) if layers else SHAPES[shape]


def is_ready(contender: Contender, shape: str, layers: int, folder: Path, quantization: str) -> bool:
    """Make llama.cpp's file if it isn't there; an export of OpenVINO's must be there."""
    own = folder / f"{contender.name}-{quantization}"
    if contender.name == OURS or own.exists():
        return True
    if contender.name == "openvino":
        say(f"openvino: no export of {shape} in {own}")
        return False
    say(f"{contender.name}: making its file")
    unfinished = folder / "unfinished"
    unfinished.mkdir(exist_ok=True)
    words = [shape, str(layers), contender.engine.formats[quantization], str(unfinished / "model.gguf")]
    subprocess.run([contender.python, "-m", "peers.random_gguf", *words], check=True, cwd=Path(__file__).parent)
    unfinished.rename(own)
    return True


def keep(
    path: Path | None, record: dict[str, Any], classes: dict[str, Any], quantization: str, sitting: dict[str, Any]
) -> None:
    """What is known so far, so that a sitting cut short leaves its figures."""
    classes[quantization] = sitting
    if path:
        path.write_text(json.dumps(record, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(record) + "\n")


# --- what a token reads -----------------------------------------------------------------------------------------------


def own_active_bytes(model: Shape, quantization: str) -> float:
    """What one token reads of Penstock's weights.

    Routers and what changes states stay floats; MXFP4 has as many bits as int4.
    """
    bits = 0.0
    for tensor in tensors(model):
        is_float = "ffn_gate_inp" in tensor.name or len(tensor.shape) == 1 or tensor.part in (DECAY, CONVOLUTION)
        beside = BESIDE_MXFP4.get(quantization, quantization)
        kind = "int4" if beside != quantization and "_exps" in tensor.name else beside
        bits += tensor.share * tensor.weights * (32 if is_float else BITS[kind])
    return bits / 8


def read_a_token(model: Shape, quantization: str, engine: str) -> float | None:
    if engine == OURS:
        return own_active_bytes(model, quantization)
    return active_bytes(model, KNOWN[engine].formats[quantization]) if "llama" in engine else None


# --- the report -------------------------------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    blocks = ["\n".join(f"- {line}" for line in conditions(record))]
    for shape, classes in record["shapes"].items():
        model = cut(shape, record["layers"])
        for quantization, sitting in classes.items():
            title = f"**{model.title}, {model.layers} of {model.published_layers} layers, {quantization}**"
            lines = [*table(sitting), *bandwidth_lines(model, quantization, sitting)]
            blocks.append("\n".join([title, "", *lines]))
            blocks.extend(f"- {line}" for line in disturbances(sitting))
    return "\n\n".join(blocks)


def bandwidth_lines(model: Shape, quantization: str, sitting: dict[str, Any]) -> Iterator[str]:
    """Of each engine: MB of weights that a token reads, and at batch 1 the share of the bandwidth."""
    reads, shares = [], []
    decode = sitting["scenarios"].get("decode", {})
    for engine in sitting["engines"]:
        read, figures = read_a_token(model, quantization, engine), decode.get(engine)
        reads.append(f"{read / 1e6:.0f}" if read else "–")
        if not read or not figures or "read_gb_s" not in figures:
            shares.append("–")
            continue
        pairs = zip(figures["step_seconds"], figures["read_gb_s"], strict=True)
        shares.append(f"{median(read / seconds / 1e9 / bandwidth for seconds, bandwidth in pairs):.0%}")
    yield "| MB of weights read a token | " + " | ".join(reads) + " | |"
    yield "| share of the bandwidth, batch 1 | " + " | ".join(shares) + " | |"


if __name__ == "__main__":
    main()
