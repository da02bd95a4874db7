"""What the engine reaches on a card, most of it as shares of what the card itself gives: one section a call.

    python scripts/bench_gpu.py limits --found found.jsonl   # first: what others are held against
    python scripts/bench_gpu.py little --found found.jsonl   # or large, profiles
    python scripts/bench_gpu.py little --small --device cpu  # tiny sizes and interpreted kernels, to try the script

A figure is printed as it is found, and added to the file as a line of JSON: a call that is ended loses none.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from gpu_figures import Figure, Setting

_FILES = {"limits": "card", "little": "trees", "large": "trees", "profiles": "profiled"}


def measure(section: Callable[[Setting], Iterator[Figure]], setting: Setting, found: Path | None) -> bool:
    """Whether all went well; what was found before a failure stays."""
    try:
        for figure in section(setting):
            _tell(str(figure), asdict(figure), found)
    except Exception as error:  # whatever it is, its first line goes into the file
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        failure = f"{type(error).__name__}: {text}"[:300]
        _tell(failure, {"name": section.__name__, "failure": failure}, found)
        return False
    return True


def _tell(line: str, entry: dict, found: Path | None) -> None:
    print(line, flush=True)
    if found is not None:
        with found.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def known(found: Path | None) -> dict[str, float]:
    """What earlier sections have written."""
    if found is None or not found.exists():
        return {}
    entries = map(json.loads, found.read_text(encoding="utf-8").splitlines())
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}


def main() -> int:
    has_card = Path("/dev/nvidiactl").exists()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("section", choices=_FILES)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if has_card else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--found", type=Path, help="add what is found to this file, and read the card's limits there")
    given = parser.parse_args()
    if given.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # a processor's own kernels are not what is measured here
    section = getattr(import_module(f"gpu_figures.{_FILES[given.section]}"), given.section)
    with tempfile.TemporaryDirectory(prefix="penstock-gpu-") as folder:
        setting = Setting(given.device, given.small, known(given.found), Path(folder))
        return 0 if measure(section, setting, given.found) else 1


if __name__ == "__main__":
    sys.exit(main())
