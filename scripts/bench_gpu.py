"""One table of what the engine reaches on a card, in minutes, most of it as shares of what the card itself gives.

    python scripts/bench_gpu.py                          # everything, section after section
    python scripts/bench_gpu.py --only decode,attention  # some sections (the card's limits are always measured)
    python scripts/bench_gpu.py --small --device cpu     # tiny sizes, to try the script where there is no card
    python scripts/bench_gpu.py --markdown --json found.json

Each section (`gpu_figures/`) is a process of its own with a limit of time, so that one that fails or hangs costs its
own figures and no more: what went wrong stands in its line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from gpu_figures.setting import Part, Setting

ROOT = Path(__file__).resolve().parents[1]
# Where each section's parts are, and the seconds that it may take; in the order of what matters most.
SECTIONS: dict[str, tuple[str, str, int]] = {
    "limits": ("card", "parts", 60),
    "decode": ("trees", "decode", 200),
    "throughput": ("trees", "throughput", 100),
    "steps": ("steps", "parts", 180),
    "attention": ("attention", "parts", 70),
    "products": ("products", "parts", 100),
    "drafts": ("drafts", "parts", 60),
    "rows": ("rows", "parts", 45),
    "idle": ("idle", "parts", 60),
    "ways": ("ways", "parts", 480),
    "price": ("trees", "price", 90),
    "peer": ("peer", "parts", 150),
    "start": ("start", "parts", 200),
}
# On a machine without a card: kernels are interpreted, and what the profiler is to see must be torch's own.
_ON_CPU = {
    **{section: {"TRITON_INTERPRET": "1"} for section in ("attention", "products", "rows")},
    "idle": {"PENSTOCK_CPU_VARIANT": "none"},
}
_MARK = "figure: "


@dataclass
class Table:
    """What was found so far, printed as it comes."""

    is_markdown: bool
    figures: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # the first line of what went wrong, by part

    def begin(self) -> None:
        if self.is_markdown:
            print("| figure | value | share |\n| --- | --- | --- |", flush=True)

    def take(self, entry: dict[str, Any]) -> None:
        if "failure" in entry:
            self.failures[entry["name"]] = entry["failure"]
            self._say(entry["name"], "–", entry["failure"])
            return
        self.figures.append(entry)
        share = "" if entry["share"] is None else f"{entry['share']:.1%} of "
        self._say(entry["name"], f"{shown(entry['value'])} {entry['unit']}", share + entry["of"])

    def _say(self, name: str, value: str, beside: str) -> None:
        line = f"| {name} | {value} | {beside} |" if self.is_markdown else f"{name:<52} {value:>20}  {beside}"
        print(line, flush=True)

    @property
    def known(self) -> dict[str, float]:
        return {entry["name"]: entry["value"] for entry in self.figures}


def shown(value: float) -> str:
    """Three digits or more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.3g}"


# --- one section, in its own process ----------------------------------------------------------------------------------


def parts_of(section: str, setting: Setting) -> Iterator[Part]:
    file, function, _ = SECTIONS[section]
    return getattr(import_module(f"gpu_figures.{file}"), function)(setting)


def run_section(section: str, setting: Setting) -> None:
    """Tells the figures, a line each, to the process that prints them."""
    for name, figures in parts_of(section, setting):
        try:
            for figure in figures():
                tell(asdict(figure))
        except Exception as error:  # whatever it is, the other parts go on
            tell({"name": name, "failure": first_line(error)})
            print(f"{section}, {name}: {error!r}", file=sys.stderr, flush=True)


def tell(entry: dict[str, Any]) -> None:
    print(_MARK + json.dumps(entry), flush=True)


def first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:160]


# --- all of them ------------------------------------------------------------------------------------------------------


def run_all(sections: list[str], table: Table, arguments: argparse.Namespace, folder: Path) -> None:
    deadline = time.monotonic() + 60 * arguments.minutes
    for section in sections:
        left = deadline - time.monotonic()
        if left < 5:
            table.take({"name": section, "failure": f"left out: the {arguments.minutes:g} minutes are over"})
            continue
        limit = min(left, SECTIONS[section][2])
        start = time.perf_counter()
        follow(section, table, arguments, folder, limit)
        print(f"{section}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if arguments.json:  # whatever becomes of the others
            arguments.json.write_text(json.dumps({"figures": table.figures, "failures": table.failures}, indent=1))


def follow(section: str, table: Table, arguments: argparse.Namespace, folder: Path, limit: float) -> None:
    """Run a section and take what it tells."""
    words = [sys.executable, __file__, "--section", section, "--folder", str(folder), "--device", arguments.device]
    words += ["--known", json.dumps(table.known)] + ["--small"] * arguments.small
    words += ["--traces", str(arguments.traces)] if arguments.traces else []
    environment = _ON_CPU.get(section, {}) if arguments.device == "cpu" else {}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    ending = threading.Timer(limit, process.kill)
    ending.start()
    for line in process.stdout or ():
        if line.startswith(_MARK):
            table.take(json.loads(line.removeprefix(_MARK)))
        else:
            print(line, end="", file=sys.stderr)
    status = process.wait()
    ending.cancel()
    if status:
        why = f"ended after its {limit:.0f} s" if status < 0 else f"exited with status {status}"
        table.take({"name": section, "failure": why})


def main() -> None:
    arguments = parsed()
    if arguments.section:
        run_section(
            arguments.section,
            Setting(
                arguments.device,
                arguments.small,
                json.loads(arguments.known),
                arguments.folder,
                traces=arguments.traces,
            ),
        )
        return
    wanted = arguments.only.split(",") if arguments.only else list(SECTIONS)
    if unknown := set(wanted) - set(SECTIONS):
        raise SystemExit(f"There is no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}.")
    table = Table(arguments.markdown)
    table.begin()
    with tempfile.TemporaryDirectory(prefix="penstock-gpu-") as folder:
        run_all([name for name in SECTIONS if name in {"limits", *wanted}], table, arguments, Path(folder))


def parsed() -> argparse.Namespace:
    has_card = Path("/dev/nvidiactl").exists()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help=f"sections, with commas between: {', '.join(SECTIONS)}")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if has_card else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--minutes", type=float, default=8, help="for everything")
    parser.add_argument("--markdown", action="store_true", help="a table for docs/gpu.md")
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    parser.add_argument("--traces", type=Path, help="keep what a profiler saw in this folder")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--known", default="{}", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
