"""A model that sees, next to llama.cpp and OpenVINO: Qwen3-VL-2B's shape, random weights, one sitting.

Each engine is a process of its own in int8, stopped while another is asked; rounds are alternated, greedy, and never
end early. Pictures are of 1,024 x 768 pixels, new ones in every round. Measured are the seconds of a question about one
until its first token, of a second question about it, and of eight conversations together with 32 tokens each.
"""

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from ..engines import OURS, Engine, llama_cpp_engine
from ..engines.child import Child, EngineFault
from ..engines.contenders import CORES, Contender, installed, models_folder
from ..engines.report import conditions
from ..engines.sitting import SETTLING, Plan, say
from ..engines.sitting import prepare as prepare_formats
from ..formats.sight_checkpoint import write_checkpoint
from ..machine import Company, machine

ENGINES = {
    OURS: Engine(OURS, "bench.engines.sight.penstock", "penstock", "penstock", {"int8": "int8"}),
    "openvino": Engine(
        "openvino", "bench.engines.sight.openvino", "openvino_genai", "openvino-genai", {"int8": "int8"}
    ),
    "llama.cpp": llama_cpp_engine("llama.cpp", {"int8": "Q8_0"}, "sight.llama_cpp"),
}  # fmt: skip
SETTINGS = {"quantization": "int8", "max_model_len": 2048, "max_num_seqs": 8}
TITLES = {
    "first": "one picture, first token",
    "second": "a second question about it, first token",
    "batch": "8 pictures, 32 tokens each",
}
ASKED, ANSWERED, ASKED_AGAIN = "What is in the picture?", "Nothing but noise.", "Is there any text in it?"
Request = dict[str, Any]
MODELS = models_folder("sight")


def run(
    engines: tuple[str, ...] = tuple(ENGINES), scenarios: tuple[str, ...] = tuple(TITLES), rounds: int = 3,
    python: tuple[str, ...] = (), threads: int = CORES, models: Path = MODELS, prepare: bool = False,
    output: Path | None = None,
) -> Any:  # fmt: skip
    write_checkpoint(models / "checkpoint")
    contenders = installed([ENGINES[name] for name in engines], "int8", python)
    prepare_formats(Plan(models, 0, threads, rounds, 1, 0), contenders, "int8")
    if prepare:
        return None
    record = {"machine": machine(), "threads": threads, "rounds": rounds, "engines": {}, "scenarios": {}}
    try:
        for contender in contenders:
            record["engines"][contender.name] = begin(contender, models, threads)
        for number in range(rounds):
            turn = number % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                measure_round(contender, number, scenarios, record["scenarios"])
                if output:
                    output.write_text(json.dumps(record, indent=1) + "\n")
                    output.with_suffix(".md").write_text(markdown(record) + "\n")
    finally:
        for contender in contenders:
            if contender.child:
                contender.child.close()
    print(markdown(record))
    return record["scenarios"]


# --- what is asked ----------------------------------------------------------------------------------------------------


def first_turn(picture: int, count: int = 1) -> Request:
    return {"picture": picture, "turns": [ASKED], "count": count}


def second_turn(picture: int) -> Request:
    return {"picture": picture, "turns": [ASKED, ANSWERED, ASKED_AGAIN], "count": 1}


def begin(contender: Contender, folder: Path, threads: int) -> dict[str, Any]:
    """Start an engine, and leave it warm and stopped."""
    log = folder / f"{contender.name}.log"
    contender.child = Child(contender.name, contender.python, contender.engine.module, log)
    loaded = contender.child.ask("load", folder=str(folder / f"{contender.name}-int8"), threads=threads, **SETTINGS)
    with contender.child.awake() as child:
        warm = time.perf_counter()
        for requests in ([first_turn(1, 4)], [second_turn(1)]):
            child.ask("look", requests=requests)
        time.sleep(SETTLING)
    say(f"{contender.name}: loaded in {loaded['seconds']:.1f} s, warm after {time.perf_counter() - warm:.1f} s")
    return {"version": contender.version, "format": contender.engine.formats["int8"], "loaded": loaded}


def measure_round(contender: Contender, number: int, scenarios: tuple[str, ...], found: dict[str, Any]) -> None:
    """One engine's part of a round."""
    first = 100 * (number + 1)
    asked = {
        "first": [first_turn(first)],
        "second": [second_turn(first)],
        "batch": [first_turn(first + place, 32) for place in range(1, 9)],
    }
    for name in scenarios:
        with Company() as company, contender.child.awake() as child:
            answer = child.ask("look", requests=asked[name])
        figures = found.setdefault(name, {}).setdefault(contender.name, {})
        for key, value in (answer | {"others": company.others}).items():
            figures.setdefault(key, []).append(value)
        if answer["num_tokens"] != [each["count"] for each in asked[name]]:
            raise EngineFault(f"{contender.name} answered with {answer['num_tokens']} tokens at {name}")
        encoded = answer["num_encoded"]
        say(f"{name}, round {number + 1}: {contender.name} {answer['seconds']:.3f} s; pictures encoded: {encoded}")


# --- the report -------------------------------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    lines = [f"- {line}" for line in conditions(record, "Qwen3-VL-2B, random weights")][:-1]
    lines += [f"- seconds, medians of {record['rounds']} alternated rounds", ""]
    engines = record["engines"]
    heads = [f"{name} {entry['version']}<br>{entry['format']}" for name, entry in engines.items()]
    lines += ["| " + " | ".join(["", *heads, "ratio"]) + " |", "| --- |" + " --- |" * (len(engines) + 1)]
    for name, figures in record["scenarios"].items():
        cells = [cell(figures.get(engine)) for engine in engines]
        lines.append(f"| {TITLES[name]} | " + " | ".join(cells) + f" | {ratio(figures)} |")
    return "\n".join(lines)


def cell(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "–"
    counts = {str(count) for count in figures["num_encoded"] if count is not None}
    encoded = f", {'/'.join(sorted(counts))} encoded" if counts else ""
    return f"{median(figures['seconds']):.2f} ({sum(figures['num_prompt'][0]):,} tokens{encoded})"


def ratio(figures: dict[str, Any]) -> str:
    """The best peer's seconds by Penstock's."""
    seconds = {name: median(entry["seconds"]) for name, entry in figures.items()}
    own = seconds.pop(OURS, None)
    if own is None or not seconds:
        return ""
    best = min(seconds, key=lambda name: seconds[name])
    return f"**{seconds[best] / own:.2f}** × {best}"
