"""Speculation against llama.cpp's n-gram kinds and OpenVINO's prompt lookup: the same checkpoint, ids and answers.

    scripts/benchmark speculation-peers --quantization int8 --python openvino=/its/python llama.cpp=/its/python

The model and the texts are those of `scripts/benchmark speculation`, one answer at a time, greedily. llama.cpp's
Python is one with llama-cpp-python, and beside it lies the program llama-server (engines/drafting). The prompt doesn't
count: the time of one token after a prompt that was computed before is taken off. An answer that isn't the text ends an
engine's part with a fault. Ratios are Penstock's rate by the others', medians over the rounds.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.frontend.models.conversion import convert_model

from ..engines import OURS, Engine, llama_cpp_engine
from ..engines.child import Child, EngineFault
from ..engines.contenders import CORES, Contender, installed
from ..engines.sitting import completed, say
from ..harness import ShapeName, alternated, median, ratios
from ..machine import Company
from ..models import SHAPES
from ..scripted.checkpoint import MODELS, write_scripted
from ..scripted.scripts import DISTANCE, Script, scripts_of

DRAFTING = "bench.engines.drafting"
# As docs/speculative.md of llama.cpp has them.
KINDS = {
    "ngram-simple": "--spec-draft-n-max 64",
    "ngram-map-k": "--spec-draft-n-max 64",
    "ngram-mod": "--spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 48 --spec-ngram-mod-n-max 64",
    "ngram-cache": "",
}
ENGINES = (
    Engine(OURS, f"{DRAFTING}.penstock_auto", "penstock", "penstock", {"int8": "int8", "int4": "int4"}),
    Engine("openvino lookup", f"{DRAFTING}.openvino_lookup", "openvino_genai", "openvino-genai",
           {"int8": "int8", "int4": "int4, groups of 128"}),
    *(
        llama_cpp_engine(f"llama.cpp {kind}", {"int8": "Q8_0", "int4": "Q4_0"},
                         f"drafting.llama_server --spec-type {kind} {options}")
        for kind, options in KINDS.items()
    ),
)  # fmt: skip


def run(
    shape: ShapeName = "0.6b", quantization: str = "int8", texts: int = 1, rounds: int = 2,
    python: tuple[str, ...] = (), threads: int = CORES, models: Path = MODELS,
) -> Any:  # fmt: skip
    folder = models / shape
    write_scripted(folder / "checkpoint", shape)
    kinds = scripts_of(models / "tokenizer.json", SHAPES[shape]["vocab_size"])
    chosen = [script for scripts in kinds.values() for script in scripts[:texts]]
    found: dict[str, Any] = {}
    with Company() as company, started(installed(ENGINES, quantization, python), folder, quantization, threads) as all:
        children = {name: child for name, child in all.items() if follows(child, chosen)}
        for script in chosen:
            rates = alternated({name: partial(rate, child, script) for name, child in children.items()}, rounds)
            found[f"{script.kind}, {script.name}"] = rates
            print(line(script, rates), flush=True)
    print(company)
    return found


@contextmanager
def started(contenders: list[Contender], folder: Path, quantization: str, threads: int) -> Iterator[dict[str, Child]]:
    """The engines' processes, loaded and stopped; one that can't load is named and left out."""
    children: dict[str, Child] = {}
    try:
        for contender in contenders:
            log = folder / f"{contender.name}-{quantization}.log"
            child = Child(contender.name, contender.python, contender.engine.module, log)
            children[contender.name] = child
            try:
                load(child, folder, quantization, threads)
            except EngineFault as fault:
                say(str(fault))
                children.pop(contender.name).close()
        yield children
    finally:
        for child in children.values():
            child.close()


def load(child: Child, folder: Path, quantization: str, threads: int) -> None:
    """Make the engine's format where it isn't there yet, one for all that share an engine, and load it."""
    own, checkpoint = folder / f"{child.name.split()[0]}-{quantization}", folder / "checkpoint"
    if not own.exists():
        say(f"{child.name}: making its format")
        if "llama" in child.name and not checkpoint.with_suffix(".gguf").exists():
            convert_model(checkpoint, checkpoint.with_suffix(".gguf"), quantization=None)
        unfinished = folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        child.ask("prepare", checkpoint=str(checkpoint), folder=str(unfinished), quantization=quantization)
        unfinished.rename(own)
    settings = {"threads": threads, "max_model_len": 2 * (DISTANCE + 1), "max_num_seqs": 1, "kv_gib": 2}
    child.ask("load", folder=str(own), quantization=quantization, **settings)
    child.pause()


def follows(child: Child, scripts: list[Script]) -> bool:
    """Whether an engine's answers are the texts; that is said of one whose answers aren't."""
    try:
        for script in scripts:
            rate(child, script)
    except EngineFault as fault:
        say(f"{fault}\n{child.name} takes no further part.")
        return False
    return True


def rate(child: Child, script: Script) -> float:
    """Tokens a second after the first."""
    first = [(script.prompt, 1)]
    with child.awake():
        completed(child, first)
        before, _ = completed(child, first)
        seconds, [answer] = completed(child, [(script.prompt, len(script.answer))])
    if answer != script.answer:
        raise EngineFault(f"{child.name}: the answer to {script.name} isn't the text")
    return (len(answer) - 1) / (seconds - before)


def line(script: Script, rates: dict[str, list[float]]) -> str:
    times = ratios(rates, OURS)
    theirs = [f"{name} {median(rates[name]):.1f} ({1 / times[name]:.2f} x)" for name in times]
    return f"{script.kind}, {script.name}: {OURS} {median(rates[OURS]):.1f} tokens/s; " + ", ".join(theirs)
