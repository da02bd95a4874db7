"""Fills the tables of README.md and docs/benchmarks.md from docs/figures/, and draws the picture there.

    python scripts/write_benchmarks.py            # writes the tables and the picture
    python scripts/write_benchmarks.py --check    # tells by its exit status whether they are stale

A page marks a table by `<!-- figures: NAME -->` and `<!-- end -->`. NAME is a row of `TABLES`, or `SITTING: TITLE` for
a table of one sitting as it is. docs/figures/README.md describes the sittings' files.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", FIGURES / "README.md")
PICTURE = FIGURES / "peers.svg"
MARKED = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)

# The columns of a comparison, and how a sitting's row for each begins.
SCENARIOS = {
    "one request": "decode, batch 1",
    "prompt of 512": "prefill 512",
    "prompt of 2,048": "prefill 2,048",
    "prompt of 16,384": "prefill 16,384",
    "16 requests": "16 × (128",
    "32 mixed requests": "32 mixed",
}


NAMES = {"openvino": "OpenVINO", "vllm": "vLLM"}


class Compared(NamedTuple):
    """A row of a comparison: the first of these sittings that measured a scenario gives its figure."""

    label: str
    table: str
    sittings: tuple[str, ...]


ZEN5 = ("2026-11-30-long-contexts-zen5", "2026-11-21-peers-quiet-zen5", "2026-11-21-peers-zen5")
XEON = ("2026-11-24-peers-xeon",)
ZEN4 = ("2026-11-25-peers-zen4",)
README = [
    Compared("AMD EPYC (Zen 5), int8", "int8", ZEN5),
    Compared("AMD EPYC (Zen 5), int4", "int4", ZEN5),
    Compared("Intel Xeon with AMX, int8", "int8", XEON),
    Compared("Intel Xeon with AMX, int4", "int4", XEON),
]
PEERS = [
    *README[:2],
    Compared("AMD EPYC (Zen 5), bfloat16", "bfloat16", ZEN5),
    Compared("AMD EPYC (Zen 5), float32", "float32", ("2026-11-22-peers-float32-zen5",)),
    *(Compared(f"AMD EPYC (Zen 4), {name}", name, ZEN4) for name in ("int8", "int4", "bfloat16")),
    *README[2:],
    Compared("Intel Xeon with AMX, bfloat16", "bfloat16", XEON),
]
SHAPES = [
    Compared(f"{model}, {name}, {processor}", f"{model}, {name}", (sitting,))
    for model, processor, sitting, names in (
        ("Gemma-3-1B", "Zen 5", "2026-11-26-shapes-zen5", ("int8", "int4")),
        ("Qwen3.5-4B, 8 layers", "Zen 5", "2026-11-26-shapes-zen5", ("int8", "int4")),
        ("ERNIE-4.5-21B-A3B, 4 layers", "Zen 4", "2026-11-25-experts-zen4", ("int8", "int4")),
        ("DeepSeek-V2-Lite, 4 layers", "Zen 4", "2026-11-25-experts-zen4", ("int8", "int4")),
        ("Qwen3-30B-A3B, 4 layers", "Zen 4", "2026-11-25-experts-zen4", ("int4",)),
        ("gpt-oss-20b, 4 layers", "Zen 4", "2026-11-25-experts-zen4", ("MXFP4 and int8", "MXFP4 and int4")),
    )
    for name in names
]
GGUF = [
    Compared(f"{name}, {processor}", name, sittings)
    for processor, sittings in (
        ("Zen 5", ("2026-11-30-gguf-zen5", "2026-11-27-gguf-zen5")),
        ("Zen 3", ("2026-11-27-gguf-zen3",)),
    )
    for name in ("Q8_0", "Q6_K", "Q4_K_M", "Q4_0")
]


class Cell(NamedTuple):
    rate: float  # Penstock's, in tokens a second
    ratio: float  # of it to the best peer's: the median over the rounds
    peer: str


@cache
def sitting(name: str) -> dict[str, Any]:
    return json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))


def sittings() -> list[str]:
    return sorted(path.stem for path in FIGURES.glob("*.json"))


def table_of(name: str, title: str) -> dict[str, Any] | None:
    tables = (part for part in sitting(name)["contents"] if not isinstance(part, str))
    return next((table for table in tables if table["title"] == title), None)


def number(text: str) -> float:
    found = re.match(r"[\d.,]+", text)
    return float(found[0].replace(",", "")) if found else 0.0


def cell(row: Compared, scenario: str) -> Cell | None:
    for name in row.sittings:
        table = table_of(name, row.table)
        measured = next((cells for cells in table["rows"] if cells[0].startswith(scenario)), None) if table else None
        if table is None or measured is None:
            continue
        ratio = next(at for at, column in enumerate(table["columns"]) if column.startswith("ratio"))
        if not number(measured[ratio]):
            continue
        best = max(range(2, ratio), key=lambda at: number(measured[at]))
        peer = table["columns"][best].split()[0].strip(",")
        return Cell(number(measured[1]), number(measured[ratio]), NAMES.get(peer, peer))
    return None


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def comparison(rows: list[Compared]) -> str:
    found = {name: [cell(row, prefix) for row in rows] for name, prefix in SCENARIOS.items()}
    found = {name: cells for name, cells in found.items() if any(cells)}
    shown = [[shown_cell(cells[at]) for cells in found.values()] for at in range(len(rows))]
    return markdown(["", *found], [[row.label, *cells] for row, cells in zip(rows, shown, strict=True)])


def shown_cell(cell: Cell | None) -> str:
    return f"{cell.rate:,.0f}, **{cell.ratio:.2f}** × {cell.peer}" if cell else "–"


def one_table(name: str, title: str) -> str:
    table = table_of(name, title)
    assert table is not None, f"docs/figures/{name}.json has no table {title!r}"
    return markdown(table["columns"], table["rows"])


def summaries() -> str:
    rows = [
        [what, figure, f"[{processor_of(name)}](figures/{name}.json)"]
        for name in sorted(sittings(), key=lambda name: name[len("2026-11-21-") :])
        for what, figure in sitting(name).get("summary", [])
    ]
    return markdown(["", "measured", "on"], rows)


def processor_of(name: str) -> str:
    """Its short name: `Zen 5`, or `Xeon with AMX`."""
    processor = sitting(name)["processor"]
    zen = re.search(r"Zen \d", processor)
    return zen[0] if zen else "Xeon with AMX" if "Xeon" in processor else processor


def index() -> str:
    rows = [
        [record["date"], f"[{record['title']}]({name}.json)", processor_of(name), record.get("superseded", "")]
        for name in sittings()
        for record in [sitting(name)]
    ]
    return markdown(["date", "sitting", "processor", "superseded"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "readme": lambda: comparison(README),
    "peers": lambda: comparison(PEERS),
    "shapes": lambda: comparison(SHAPES),
    "gguf": lambda: comparison(GGUF),
    "summaries": summaries,
    "index": index,
}


def filled(text: str) -> str:
    def made(found: re.Match[str]) -> str:
        name = found[2]
        table = TABLES[name]() if name in TABLES else one_table(*name.split(": ", 1))
        return f"{found[1]}\n{table}\n{found[3]}"

    return MARKED.sub(made, text)


def picture() -> str:
    """A group of bars for each row of PEERS: Penstock's speed by the best peer's, which is the dashed line."""
    bar, left, unit = 15, 330, 150
    shapes, top = [], 10
    for row in PEERS:
        shapes.append(words(8, top + 12, row.label, "bold"))
        for name, prefix in SCENARIOS.items():
            if (found := cell(row, prefix)) is not None:
                shapes.append(words(200, top + 12, name))
                shapes.append(
                    f"<rect x='{left}' y='{top}' width='{found.ratio * unit:.0f}' height='{bar}' fill='#1f6feb'/>"
                )
                shapes.append(words(left + found.ratio * unit + 6, top + 12, f"{found.ratio:.2f} × {found.peer}"))
                top += bar + 4
        top += 10
    line = f"x1='{left + unit}' x2='{left + unit}' y1='0' y2='{top}'"
    shapes.append(f"<line {line} stroke='#57606a' stroke-dasharray='3 3'/>")
    frame = f"<svg xmlns='http://www.w3.org/2000/svg' width='860' height='{top}' viewBox='0 0 860 {top}'>"
    return "\n".join([frame, "<rect width='100%' height='100%' fill='white'/>", *shapes, "</svg>\n"])


def words(left: float, baseline: float, text: str, weight: str = "normal") -> str:
    style = f"font-family='system-ui, sans-serif' font-size='12' fill='#24292f' font-weight='{weight}'"
    return f"<text x='{left:.0f}' y='{baseline:.0f}' {style}>{escape(text)}</text>"


def stale() -> Iterator[tuple[Path, str]]:
    """Each page or picture that differs from what the sittings make of it, and what it should be."""
    wanted = {page: filled(page.read_text(encoding="utf-8")) for page in PAGES} | {PICTURE: picture()}
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only tell whether the pages are stale")
    is_check = parser.parse_args().check
    found = list(stale())
    for path, text in found:
        if not is_check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is stale' if is_check else 'is written'}")
    if is_check and found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
