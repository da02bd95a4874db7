"""The same GGUF files in Penstock and in llama.cpp, one sitting, in turns.

PYTHON is one in which llama-cpp-python was compiled for this machine. Without `--files` a Qwen3 of that shape with
random weights is written as GGUF by `penstock convert`, and llama.cpp quantizes it. Batch 1, a prompt of 512,
16 × (128, 64) and the start of a process to its first token are measured, medians and ratios shown. The second start of
a file is the one that finds what Penstock keeps of it; llama.cpp maps the file at each. Below batch 1 stands what part
of the bandwidth read in between the weights make that a token reads.
"""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from penstock.frontend.models.conversion import convert_model
from penstock.protocol.files.gguf.parts import parts_of, read_model

from ..engines import OURS, Engine, llama_cpp_engine
from ..engines.contenders import CORES, installed, models_folder
from ..engines.llama_cpp import MODEL_FILE
from ..engines.report import bandwidth_lines, conditions, disturbances, keep, table
from ..engines.scenarios import SCENARIOS
from ..engines.sitting import Plan, hold, say
from ..harness import ShapeName
from ..machine import ROOT, machine
from ..models import write_checkpoint

SCENARIOS_RUN = ("decode", "prefill_512", "batch_16")
THEIRS = "llama.cpp"
MODELS = models_folder("gguf")


def run(
    python: str, files: tuple[Path, ...] = (), shape: ShapeName = "0.6b",
    kinds: tuple[str, ...] = ("Q4_K_M", "Q8_0", "Q4_0", "Q6_K"), rounds: int = 3, starts: int = 2,
    patience: float = 120.0, threads: int = CORES, models: Path = MODELS, keep_models: bool = False,
    output: Path | None = None,
) -> Any:  # fmt: skip
    record = {"machine": machine(), "threads": threads, "rounds": rounds, "files": {}, "read": {}}
    record["model"] = ", ".join(each.name for each in files) or f"Qwen3-{shape} as GGUF, random weights"
    for file in files or made_files(models, shape, kinds, python):
        name, model = file.stem, read_model(parts_of(file))
        record["read"][name] = bytes_read_a_token(file)
        ours = Engine(OURS, f"bench.engines.penstock {MODEL_FILE}", "penstock", "penstock", {name: "the file"})
        theirs = llama_cpp_engine(THEIRS, {name: "the file"}, "llama_cpp MMAP")
        contenders = installed([ours, theirs], name, [f"{THEIRS}={python}"])
        folders = [models / f"{contender.name}-{name}" for contender in contenders]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / MODEL_FILE).exists():
                (folder / MODEL_FILE).symlink_to(file.resolve())
        plan = Plan(models, len(model.metadata["tokenizer.ggml.tokens"]), threads, rounds, starts, patience)
        keep_all = partial(keep, output, record, markdown, record["files"], name)
        hold(plan, contenders, [SCENARIOS[each] for each in SCENARIOS_RUN], name, keep_all)
        for folder in folders:
            shutil.rmtree(folder)
        if not files and not keep_models:
            file.unlink()
    print(markdown(record))
    return record["files"]


def made_files(folder: Path, shape: str, kinds: tuple[str, ...], python: str) -> Iterator[Path]:
    """One of each kind, made where it isn't there."""
    whole = folder / f"qwen3-{shape}.gguf"
    if not whole.exists():
        say("making the model")
        write_checkpoint(folder / "checkpoint", shape)
        convert_model(folder / "checkpoint", whole, quantization=None)
        shutil.rmtree(folder / "checkpoint")
    for kind in kinds:
        file = whole.with_name(f"{whole.stem}-{kind}.gguf")
        if not file.exists():
            say(f"making {kind}")
            command = [python, "-m", "bench.formats.quantize_gguf", str(whole), kind]
            subprocess.run(command, check=True, cwd=ROOT / "scripts", capture_output=True)
        yield file


def bytes_read_a_token(file: Path) -> float:
    """Bytes of weights: all but the table that ids look up, unless it is the head too, and the experts in use."""
    model = read_model(parts_of(file))
    architecture, names = model.metadata["general.architecture"], model.tensors
    used = model.metadata.get(f"{architecture}.expert_used_count", 1)
    share = used / model.metadata.get(f"{architecture}.expert_count", 1)
    total = 0.0
    for name, (_, info) in names.items():
        if name != "token_embd.weight" or "output.weight" not in names:
            total += info.nbytes * (share if "_exps." in name else 1)
    return total


def markdown(record: dict[str, Any]) -> str:
    blocks = ["\n".join(f"- {line}" for line in conditions(record, record["model"]))]
    for name, sitting in record["files"].items():
        reads = dict.fromkeys(sitting["engines"], record["read"][name])
        blocks.append("\n".join([f"**{name}**", "", *table(sitting), *bandwidth_lines(sitting, reads)]))
        blocks.append("\n".join(f"- {line}" for line in disturbances(sitting)))
    return "\n\n".join(filter(None, blocks))
