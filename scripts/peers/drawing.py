"""A sitting's record as a picture: a group of bars a scenario, each engine's rate by the best peer's. Plain SVG.

Made from the record alone, without a plotting library.
"""

from statistics import median
from typing import Any
from xml.sax.saxutils import escape

from .report import best_peer
from .scenarios import SCENARIOS

COLOURS = {
    "penstock": "#1f6feb",
    "openvino": "#8b949e",
    "llama.cpp": "#b08d57",
    "vllm": "#6e9c7a",
    "transformers": "#c9c9c9",
}
WIDTH, LABEL_WIDTH, FIGURE_WIDTH = 860, 300, 70
BAR, GAP, GROUP_GAP, TITLE = 13, 3, 12, 26
STYLE = "font-family='system-ui, sans-serif' font-size='12' fill='#24292f'"


def picture(record: dict[str, Any]) -> str:
    shapes: list[str] = []
    top = 8.0
    for quantization, sitting in record["classes"].items():
        heading = f"{quantization}: tokens/s (bars: by the best peer's)"
        shapes.append(text(8, top + 16, heading, "font-weight='bold'"))
        top = groups(sitting["scenarios"], shapes, legend(list(sitting["engines"]), shapes, top + TITLE))
    size = f"width='{WIDTH}' height='{top:.0f}' viewBox='0 0 {WIDTH} {top:.0f}'"
    frame = f"<svg xmlns='http://www.w3.org/2000/svg' {size}>"
    return "\n".join([frame, "<rect width='100%' height='100%' fill='white'/>", *shapes, "</svg>\n"])


def legend(engines: list[str], shapes: list[str], top: float) -> float:
    left = LABEL_WIDTH
    for name in engines:
        shapes.append(bar(left, top, BAR, name))
        shapes.append(text(left + BAR + 5, top + BAR - 2, name))
        left += 105
    return top + BAR + GROUP_GAP


def groups(scenarios: dict[str, Any], shapes: list[str], top: float) -> float:
    """One group of bars a scenario; returns where the next thing may stand."""
    rates = {
        name: {engine: median(entry["rate"]) for engine, entry in figures.items()}
        for name, figures in scenarios.items()
        if best_peer(figures)
    }
    if not rates:
        return top
    relative = {name: {e: rate / best_peer(scenarios[name])[1] for e, rate in by.items()} for name, by in rates.items()}
    scale = (WIDTH - LABEL_WIDTH - FIGURE_WIDTH) / max(max(by.values()) for by in relative.values())
    begin = top
    for name, by_engine in relative.items():
        shapes.append(text(8, top + BAR - 2, SCENARIOS[name].title))
        for engine, value in by_engine.items():
            shapes.append(bar(LABEL_WIDTH, top, value * scale, engine))
            figure = f"{rates[name][engine]:.0f}" + (f"  ({value:.2f} ×)" if engine == "penstock" else "")
            shapes.append(text(LABEL_WIDTH + value * scale + 5, top + BAR - 2, figure, "font-size='10'"))
            top += BAR + GAP
        top += GROUP_GAP
    at = LABEL_WIDTH + scale
    ends = f"x1='{at:.1f}' x2='{at:.1f}' y1='{begin:.0f}' y2='{top:.0f}'"
    shapes.append(f"<line {ends} stroke='#57606a' stroke-dasharray='3 3'/>")
    return top


def bar(left: float, top: float, width: float, engine: str) -> str:
    colour = COLOURS.get(engine, "#d0d7de")
    return f"<rect x='{left:.1f}' y='{top:.1f}' width='{width:.1f}' height='{BAR}' fill='{colour}'/>"


def text(left: float, baseline: float, words: str, more: str = "") -> str:
    style = STYLE if "font-size" not in more else STYLE.replace(" font-size='12'", "")
    return f"<text x='{left:.1f}' y='{baseline:.1f}' {style} {more}>{escape(words)}</text>"
