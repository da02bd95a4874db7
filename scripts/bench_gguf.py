"""GGUF files beside llama.cpp: the same file in both engines, one sitting, in turns.

    python scripts/bench_gguf.py --python PYTHON [FILE.gguf …] [--shape 0.6b] [--kinds Q4_K_M,Q8_0,Q4_0,Q6_K]
        [--rounds 3] [--starts 2] [--output figures.json] [--models FOLDER] [--keep]

PYTHON is one in which llama-cpp-python was compiled for this machine. Without a FILE a Qwen3 of that shape with random
weights is written as GGUF by `penstock convert`, and llama.cpp quantizes it. Batch 1, a prompt of 512, 16 × (128, 64)
and the start of a process to its first token are measured, medians and ratios shown. The second start of a file is the
one that finds what Penstock keeps of it; llama.cpp maps the file at each. Beside batch 1 stands what part of the
bandwidth read in between the weights make that a token reads.
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

from bench_models import SHAPES
from bench_peers import about, installed, machine_limits
from peers import Engine
from peers.byte_tokenizer import write_byte_tokenizer
from peers.checkpoint import write_checkpoint
from peers.llama_cpp import MODEL_FILE
from peers.report import conditions, disturbances, table
from peers.scenarios import SCENARIOS
from peers.sitting import OURS, Plan, hold, say

from penstock.frontend.models.conversion import convert_model
from penstock.protocol.files.gguf.parts import parts_of, read_model

SCRIPTS = Path(__file__).resolve().parent
SCENARIOS_RUN = ("decode", "prefill_512", "batch_16")
KINDS = ("Q4_K_M", "Q8_0", "Q4_0", "Q6_K")
THEIRS = "llama.cpp"


def main() -> None:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # engines are ended on the way out
    record = {"machine": about(), "limits": machine_limits(arguments.threads), "threads": arguments.threads}
    model = ", ".join(each.name for each in arguments.files) or f"Qwen3-{arguments.shape} as GGUF"
    record |= {"model": model, "rounds": arguments.rounds, "files": {}, "read": {}}
    folder = Path(arguments.models)
    for file in arguments.files or made_files(folder, arguments):
        measure(file, folder, arguments, record)
        if not arguments.files and not arguments.keep:
            file.unlink()
    print(markdown(record))


def parse() -> argparse.Namespace:
    models = Path(tempfile.gettempdir()) / f"penstock-bench-gguf-{os.getuid()}"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--python", required=True, help="one in which llama-cpp-python is installed")
    parser.add_argument("--shape", choices=list(SHAPES), default="0.6b")
    parser.add_argument("--kinds", type=lambda words: words.split(","), default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=2, help="fresh processes of each engine")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds; a slower and losing run isn't repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--models", default=models, help="folder for files that are made")
    parser.add_argument("--keep", action="store_true", help="leave them there")
    parser.add_argument("--output", type=Path, help="the record, FILE.json; FILE.md beside it")
    return parser.parse_args()


def made_files(folder: Path, arguments: argparse.Namespace) -> Iterator[Path]:
    """One of each kind, made where it isn't there."""
    whole = folder / f"qwen3-{arguments.shape}.gguf"
    if not whole.exists():
        say("making the model")
        write_checkpoint(folder / "checkpoint", arguments.shape)
        write_byte_tokenizer(folder / "checkpoint")
        convert_model(folder / "checkpoint", whole, quantization=None)
        shutil.rmtree(folder / "checkpoint")
    for kind in arguments.kinds:
        file = whole.with_name(f"{whole.stem}-{kind}.gguf")
        if not file.exists():
            say(f"making {kind}")
            command = [arguments.python, "-m", "peers.quantize_gguf", str(whole), kind]
            subprocess.run(command, check=True, cwd=SCRIPTS, capture_output=True)
        yield file


def measure(file: Path, folder: Path, arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    name, model = file.stem, read_model(parts_of(file))
    ours = Engine(OURS, "peers.penstock_gguf", "penstock", "penstock", {name: "the file"})
    theirs = Engine(THEIRS, "peers.llama_cpp_gguf", "llama_cpp", "llama-cpp-python", {name: "the file"})
    contenders = installed([ours, theirs], name, {THEIRS: arguments.python})
    for contender in contenders:
        own = folder / f"{contender.name}-{name}"
        own.mkdir(parents=True, exist_ok=True)
        if not (own / MODEL_FILE).exists():
            (own / MODEL_FILE).symlink_to(file.resolve())
    vocabulary = len(model.metadata["tokenizer.ggml.tokens"])
    plan = Plan(folder, vocabulary, arguments.threads, arguments.rounds, arguments.starts, arguments.patience)
    record["read"][name] = bytes_read_a_token(file)
    keep_all = partial(keep, arguments.output, record, name)
    hold(plan, contenders, [SCENARIOS[each] for each in SCENARIOS_RUN], name, keep_all)
    for contender in contenders:
        shutil.rmtree(folder / f"{contender.name}-{name}")


def keep(path: Path | None, record: dict[str, Any], name: str, sitting: dict[str, Any]) -> None:
    """What is known so far, so that a sitting cut short leaves its figures."""
    record["files"][name] = sitting
    if path:
        path.write_text(json.dumps(record, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(record) + "\n")


def bytes_read_a_token(file: Path) -> float:
    """Of the weights: all but the table that ids look up, unless it is the head too; of experts those in use."""
    model = read_model(parts_of(file))
    architecture, names = model.metadata["general.architecture"], model.tensors
    used = model.metadata.get(f"{architecture}.expert_used_count", 1)
    share = used / model.metadata.get(f"{architecture}.expert_count", 1)
    total = 0.0
    for name, (_, info) in names.items():
        if name != "token_embd.weight" or "output.weight" not in names:
            total += info.nbytes * (share if "_exps." in name else 1)
    return total


# --- the report -------------------------------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    blocks = ["\n".join(f"- {line}" for line in conditions(record))]
    for name, sitting in record["files"].items():
        lines = [f"**{name}**", "", *table(sitting), *further_lines(record["read"][name], sitting)]
        blocks.append("\n".join(lines))
        blocks.extend(f"- {line}" for line in disturbances(sitting))
    return "\n\n".join(blocks)


def further_lines(read: float, sitting: dict[str, Any]) -> Iterator[str]:
    decode = sitting["scenarios"].get("decode", {})
    shares = []
    for engine in sitting["engines"]:
        figures = decode.get(engine)
        if not figures or "read_gb_s" not in figures:
            shares.append("–")
            continue
        pairs = zip(figures["step_seconds"], figures["read_gb_s"], strict=True)
        shares.append(f"{median(read / seconds / 1e9 / bandwidth for seconds, bandwidth in pairs):.0%}")
    yield "| share of the bandwidth, batch 1 | " + " | ".join(shares) + f" | {read / 1e6:.0f} MB a token |"
    if sitting["import_torch"]:
        yield f"| `import torch` meanwhile, s | {median(sitting['import_torch']):.2f} |" + " |" * len(shares)


if __name__ == "__main__":
    main()
