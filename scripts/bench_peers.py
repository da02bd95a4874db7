"""Penstock against every other engine that is installed: same random-weight model, same token ids, one sitting.

    python scripts/bench_peers.py [--quantization int8,int4] [--peers penstock,llama.cpp] [--scenarios decode,…]
        [--rounds 2] [--python llama.cpp=/path/to/its/python] [--output figures.json]

Each engine is a process of its own, run by its own Python (`--python`, by default this one), and stopped while another
is asked; rounds are alternated, greedy, and never end early. Prints a table of tokens a second and ratios, of starts
and of memory, beside what the machine gives at most, measured in the same sitting; `--output` keeps the record as JSON,
the table as Markdown and a picture as SVG beside it. What each engine is told lies in `scripts/peers/`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench_harness import last_level_cache, processor, revision
from bench_models import SHAPES
from machine_limits import NoCompiler, limits
from peers import ENGINES, Engine
from peers.checkpoint import write_checkpoint
from peers.drawing import picture
from peers.report import markdown
from peers.scenarios import DEFAULT, SCENARIOS
from peers.sitting import Contender, Plan, hold, prepare

CLASSES = ("fp32", "none", "int8", "int4")
FIND = """
import importlib.metadata, importlib.util, sys
if importlib.util.find_spec(sys.argv[1]) is None: sys.exit(3)
print(importlib.metadata.version(sys.argv[2]))
"""


def main() -> None:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # engines are ended on the way out
    shape = SHAPES[arguments.shape]
    folder = Path(arguments.models) / arguments.shape
    write_checkpoint(folder / "checkpoint", arguments.shape)
    plan = Plan(folder, shape["vocab_size"], arguments.threads, arguments.rounds, arguments.starts, arguments.patience)
    record = {"machine": about(), "limits": machine_limits(arguments.threads), "threads": arguments.threads}
    record |= {"shape": arguments.shape, "rounds": arguments.rounds, "classes": {}}
    for quantization in arguments.quantization:
        contenders = installed([ENGINES[name] for name in arguments.peers], quantization, dict(arguments.python))
        if arguments.prepare:
            prepare(plan, contenders, quantization)
            continue
        scenarios = [SCENARIOS[name] for name in arguments.scenarios]
        hold(plan, contenders, scenarios, quantization, partial(keep, arguments.output, record, quantization))
    if not arguments.prepare:
        print(markdown(record))


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Reads names with commas, and refuses those that aren't known."""

    def split(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return chosen

    return split


def named_path(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if name not in ENGINES or not equals or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text}: NAME=PATH with a name of {', '.join(ENGINES)} and its Python")
    return name, path


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    models = Path(tempfile.gettempdir()) / f"penstock-bench-peers-{os.getuid()}"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=names_of(ENGINES), default=list(ENGINES), help="which engines, with commas")
    parser.add_argument("--scenarios", type=names_of(SCENARIOS), default=list(DEFAULT), help="which, with commas")
    parser.add_argument("--quantization", type=names_of(CLASSES), default=["int8"], help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--starts", type=int, default=2, help="fresh processes until the first token, of each engine")
    parser.add_argument("--patience", type=float, default=15.0, help="seconds; a slower and losing run isn't repeated")
    parser.add_argument("--python", type=named_path, action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--shape", choices=list(SHAPES), default="0.6b")
    parser.add_argument("--models", default=models, help="folder for the model in each engine's format; kept")
    parser.add_argument("--prepare", action="store_true", help="only make each engine's format of the model")
    parser.add_argument("--output", type=Path, help="the record, FILE.json; FILE.md and FILE.svg beside it")
    return parser.parse_args()


def installed(engines: Iterable[Engine], quantization: str, pythons: dict[str, str]) -> list[Contender]:
    """The engines that can be imported and know the precision class; the others are named and left out."""
    found = []
    for engine in engines:
        python = pythons.get(engine.name, sys.executable)
        if quantization not in engine.formats:
            continue
        asked = subprocess.run(
            [python, "-c", FIND, engine.imports, engine.distribution], capture_output=True, text=True
        )
        if asked.returncode:
            print(f"{engine.name}: not installed for {python}; --python NAME=PATH names another", file=sys.stderr)
        else:
            found.append(Contender(engine, python, asked.stdout.strip()))
    return found


def about() -> dict[str, Any]:
    return {
        "revision": revision(),
        **processor(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "last_level_cache": last_level_cache(),
        "load_average": round(os.getloadavg()[0], 2),
        "time": subprocess.run(["date", "--iso-8601=minutes"], capture_output=True, text=True).stdout.strip(),
    }


def machine_limits(threads: int) -> dict[str, Any] | None:
    try:
        return limits(threads)
    except NoCompiler as error:
        print(error, file=sys.stderr)
        return None


def keep(path: Path | None, record: dict[str, Any], quantization: str, sitting: dict[str, Any]) -> None:
    """What is known so far, so that a sitting cut short leaves its figures."""
    record["classes"][quantization] = sitting
    if path:
        path.write_text(json.dumps(record, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(record) + "\n")
        path.with_suffix(".svg").write_text(picture(record))


if __name__ == "__main__":
    main()
