"""Penstock against every other engine that is installed: same shape, same token ids, one sitting.

    scripts/benchmark peers --quantization int8 int4 --output figures.json \\
        --python openvino=/path/to/its/python llama.cpp=/path/to/its/python vllm=/path/to/its/python
    scripts/benchmark peers --shapes qwen3-30b olmoe --python llama.cpp=/path/to/its/python

Each engine is a process of its own, run by its own Python (`--python`, by default this one), and stopped while another
is asked; rounds are alternated, greedy, and never end early. Prints tokens a second and ratios, starts and memory;
`--output FILE.json` keeps the record, and the tables as FILE.md. `--engines` and `--scenarios` choose, `--models` names
the folder where each engine's format of the model is kept, `--prepare` only makes them.

0.6b and 8b are Qwen3's, with the same random weights for all engines. The others are published shapes, some with fewer
layers (`--layers` cuts further): Penstock makes their weights up while it loads, llama.cpp's files are written directly
in each of its formats, so that no model is ever whole in floats, and OpenVINO takes part where the folder holds its
export. Below their rates stand the bytes of weights that one token reads.
"""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from penstock.frontend.models.conversion import convert_model

from ..engines import ENGINES, OURS
from ..engines.contenders import CORES, Contender, installed, models_folder
from ..engines.report import bandwidth_lines, conditions, disturbances, keep, remarks, table
from ..engines.scenarios import DEFAULT, SCENARIOS
from ..engines.sitting import Plan, hold, say
from ..engines.sitting import prepare as prepare_formats
from ..formats.random_gguf import active_bytes
from ..machine import ROOT, machine
from ..models import SHAPES, write_checkpoint
from ..shapes import PUBLISHED
from ..shapes.shape import BESIDE_MXFP4, CONVOLUTION, DECAY, Shape, tensors, write_config

OF_PUBLISHED = {
    "engines": (OURS, "openvino", "llama.cpp", "llama.cpp Q4_K_M", "llama.cpp MXFP4"),
    "scenarios": ("decode", "prefill_512", "batch_16"),
}
BITS = {"int8": 8.0, "int4": 4.25}  # of a weight here, scales of groups included
CLASSES = ("fp32", "none", *BITS, *BESIDE_MXFP4)
MODELS = models_folder("peers")


def run(
    shapes: tuple[str, ...] = ("0.6b",), layers: int | None = None, engines: tuple[str, ...] = (),
    scenarios: tuple[str, ...] = (), quantization: tuple[str, ...] = ("int8",), rounds: int = 2, starts: int = 2,
    patience: float = 15.0, python: tuple[str, ...] = (), threads: int = CORES,
    models: Path = MODELS, prepare: bool = False, keep_models: bool = False,
    output: Path | None = None,
) -> Any:  # fmt: skip
    check(shapes, (*SHAPES, *PUBLISHED), "shape")
    check(engines, ENGINES, "engine")
    check(scenarios, SCENARIOS, "scenario")
    check(quantization, CLASSES, "class")
    record = {"machine": machine(), "threads": threads, "rounds": rounds, "layers": layers, "shapes": {}}
    for shape in shapes:
        is_own = shape in SHAPES
        vocabulary = (SHAPES[shape] if is_own else PUBLISHED[shape].config)["vocab_size"]
        folder = models / (shape if is_own else f"{shape}-{cut(shape, layers).layers}")
        plan = Plan(folder, vocabulary, threads, rounds, starts, patience, kv_bytes_per_token(shape))
        names = engines or (tuple(ENGINES)[:5] if is_own else OF_PUBLISHED["engines"])
        chosen = [SCENARIOS[name] for name in scenarios or (DEFAULT if is_own else OF_PUBLISHED["scenarios"])]
        classes = record["shapes"].setdefault(shape, {})
        for form in quantization:
            contenders = installed([ENGINES[name] for name in names], form, python)
            if is_own:
                prepare_checkpoint(folder, shape, contenders)
            else:
                contenders = prepare_published(folder, cut(shape, layers), shape, form, contenders)
            if prepare:
                prepare_formats(plan, contenders, form)
            elif contenders:
                hold(plan, contenders, chosen, form, partial(keep, output, record, markdown, classes, form))
            if not is_own and not keep_models:
                for path in folder.glob(f"llama.cpp*-{form}"):
                    shutil.rmtree(path)
    if not prepare:
        print(markdown(record))
    return record["shapes"]


def check(names: tuple[str, ...], known: Any, what: str) -> None:
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"There is no {what} {', '.join(unknown)}; there are {', '.join(known)}.")


def kv_bytes_per_token(shape: str) -> int:
    """Keys and values in bfloat16, which every engine can keep."""
    config = SHAPES[shape] if shape in SHAPES else PUBLISHED[shape].config
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(4 * config["num_hidden_layers"] * config["num_key_value_heads"] * size)


def cut(shape: str, layers: int | None) -> Shape:
    return PUBLISHED[shape].cut(layers) if layers else PUBLISHED[shape]


# --- the models -------------------------------------------------------------------------------------------------------


def prepare_checkpoint(folder: Path, shape: str, contenders: list[Contender]) -> None:
    """A checkpoint of random weights, and beside it the GGUF file that llama.cpp quantizes."""
    checkpoint = folder / "checkpoint"
    write_checkpoint(checkpoint, shape)
    if any("llama" in one.name for one in contenders) and not checkpoint.with_suffix(".gguf").exists():
        convert_model(checkpoint, checkpoint.with_suffix(".gguf"), quantization=None)


def prepare_published(
    folder: Path, model: Shape, shape: str, quantization: str, contenders: list[Contender]
) -> list[Contender]:
    """The contenders that have a published shape in their format: llama.cpp's is made, OpenVINO's must be there."""
    if quantization in BESIDE_MXFP4 and not model.is_mxfp4:
        say(f"{model.title} is not published in MXFP4, and left out of that class")
        return []
    write_config(folder / "checkpoint", model.in_class(quantization))
    return [one for one in contenders if is_ready(one, shape, model.layers, folder, quantization)]


def is_ready(contender: Contender, shape: str, layers: int, folder: Path, quantization: str) -> bool:
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
    subprocess.run([contender.python, "-m", "bench.formats.random_gguf", *words], check=True, cwd=ROOT / "scripts")
    unfinished.rename(own)
    return True


# --- what a token reads -----------------------------------------------------------------------------------------------


def own_active_bytes(model: Shape, quantization: str) -> float:
    """Bytes of Penstock's weights that one token reads.

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
    return active_bytes(model, ENGINES[engine].formats[quantization]) if "llama" in engine else None


# --- the report -------------------------------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    blocks = ["\n".join(f"- {line}" for line in conditions(record, "random weights"))]
    for shape, classes in record["shapes"].items():
        for quantization, sitting in classes.items():
            blocks.append("\n".join(lines_of(shape, record["layers"], quantization, sitting)))
            notes = remarks(sitting) if shape in SHAPES else disturbances(sitting)
            blocks.append("\n".join(f"- {line}" for line in notes))
    return "\n\n".join(filter(None, blocks))


def lines_of(shape: str, layers: int | None, quantization: str, sitting: dict[str, Any]) -> Iterator[str]:
    if shape in SHAPES:
        yield from (f"**Qwen3-{shape}, {quantization}**", "", *table(sitting))
        return
    model = cut(shape, layers)
    yield from (f"**{model.title}, {model.layers} of {model.published_layers} layers, {quantization}**", "")
    yield from table(sitting)
    yield from bandwidth_lines(sitting, {name: read_a_token(model, quantization, name) for name in sitting["engines"]})
