"""A sitting's record as Markdown: the machine, a table for each model and precision class, and what is to be noted."""

import json
from collections.abc import Callable, Iterator, Mapping
from operator import eq
from pathlib import Path
from statistics import median
from typing import Any

from . import OURS
from .scenarios import SCENARIOS

BUSY = 0.1  # cores that others may use before it is worth a word
Record = dict[str, Any]


def keep(
    path: Path | None, record: Record, markdown: Callable[[Record], str], sittings: Record, name: str, sitting: Record
) -> None:
    """Write what is known so far, so that a sitting cut short leaves its figures."""
    sittings[name] = sitting
    if path:
        path.write_text(json.dumps(record, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(record) + "\n")


def conditions(record: Record, model: str) -> Iterator[str]:
    machine, limits = record["machine"], record["machine"]["limits"]
    flags = ", ".join(machine["flags"])
    yield f"{machine['processor']} ({flags}), {machine['cores']} cores, {record['threads']} threads"
    if "read_gb_s" in limits:
        rates = [f"reads {limits['read_gb_s']['median']:.1f} GB/s (best {limits['read_gb_s']['best']:.1f})"]
        for name, unit in (("float32", "gflop_s"), ("bfloat16", "gflop_s"), ("int8", "gop_s")):
            if rate := limits[f"{name}_{unit}"]:
                rates.append(f"{name} {rate:.0f} {'GOP/s' if unit == 'gop_s' else 'GFLOP/s'}")
        yield "limits: " + ", ".join(rates)
    yield f"{model}, Penstock {machine['revision']}, {machine['time']}"
    yield f"tokens/s, medians of {record['rounds']} alternated rounds; ¹ one round: slow, and not the best peer"


def table(sitting: Record) -> Iterator[str]:
    engines = sitting["engines"]
    columns = ["", *(f"{name} {entry['version']}<br>{entry['format']}" for name, entry in engines.items()), "ratio"]
    yield "| " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * (len(columns) - 1)
    for name, figures in sitting["scenarios"].items():
        cells = [rate_cell(figures, engine) for engine in engines]
        yield f"| {SCENARIOS[name].title} | " + " | ".join(cells) + f" | {ratio_cell(figures)} |"
    starts = [", ".join(f"{seconds:.2f}" for seconds in entry["starts"]) for entry in engines.values()]
    yield "| start to first token, s | " + " | ".join(starts) + " | |"
    memory = [entry["memory"].get("after", entry["memory"]["loaded"])["pss"] for entry in engines.values()]
    yield "| memory of the whole tree, GB (PSS) | " + " | ".join(f"{size:.2f}" for size in memory) + " | |"


def rate_cell(figures: Record, engine: str) -> str:
    if engine not in figures:
        return "–"
    rates = figures[engine]["rate"]
    once = "¹" if len(rates) < max(len(other["rate"]) for other in figures.values()) else ""
    return f"{median(rates):.1f}{once}"


def best_peer(figures: Record) -> tuple[str, float] | None:
    rates = {name: median(entry["rate"]) for name, entry in figures.items() if name != OURS}
    return max(rates.items(), key=lambda item: item[1]) if rates else None


def ratio(figures: Record) -> float | None:
    """Penstock's rate by the best peer's."""
    best = best_peer(figures)
    return median(figures[OURS]["rate"]) / best[1] if best and OURS in figures else None


def ratio_cell(figures: Record) -> str:
    value = ratio(figures)
    return f"**{value:.2f}** × {best_peer(figures)[0]}" if value else ""


def bandwidth_lines(sitting: Record, reads: Mapping[str, float | None]) -> Iterator[str]:
    """MB of weights that a token reads, and the share of the bandwidth at batch 1, of each engine."""
    decode, megabytes, shares = sitting["scenarios"].get("decode", {}), [], []
    for engine in sitting["engines"]:
        read, figures = reads[engine], decode.get(engine)
        megabytes.append(f"{read / 1e6:.0f}" if read else "–")
        if not read or not figures or "read_gb_s" not in figures:
            shares.append("–")
            continue
        pairs = zip(figures["step_seconds"], figures["read_gb_s"], strict=True)
        shares.append(f"{median(read / seconds / 1e9 / bandwidth for seconds, bandwidth in pairs):.0%}")
    yield "| MB of weights read a token | " + " | ".join(megabytes) + " | |"
    yield "| share of the bandwidth, batch 1 | " + " | ".join(shares) + " | |"


def remarks(sitting: Record) -> Iterator[str]:
    if sitting["import_torch"]:
        yield f"`import torch` meanwhile: {median(sitting['import_torch']):.2f} s"
    yield from step_remarks(sitting)
    yield from agreement(sitting)
    yield from disturbances(sitting)


def disturbances(sitting: Record) -> Iterator[str]:
    """Report other use of the machine, and failures."""
    others = [share for each in sitting["scenarios"].values() for entry in each.values() for share in entry["others"]]
    if others and max(others) > BUSY:
        yield f"others used up to {max(others):.2f} cores meanwhile (median {median(others):.2f})"
    for fault in sitting["faults"]:
        yield f"{fault['engine']}: {fault['fault'].splitlines()[0]}"


def agreement(sitting: Record) -> Iterator[str]:
    """Whether the engines computed the same model: how many first tokens are those of Penstock."""
    equal: dict[str, list[bool]] = {}
    for figures in sitting["scenarios"].values():
        ours = figures.get(OURS, {}).get("first_tokens", [])
        for name in figures.keys() - {OURS}:
            for theirs, own in zip(figures[name]["first_tokens"], ours):
                equal.setdefault(name, []).extend(map(eq, theirs, own))
    shares = [f"{name} {sum(same) / len(same):.0%} of {len(same)}" for name, same in sorted(equal.items())]
    if shares:
        yield "first tokens equal to Penstock's: " + ", ".join(shares)


def step_remarks(sitting: Record) -> Iterator[str]:
    """Compare our batch-1 step with memory's speed."""
    figures = sitting["scenarios"].get("decode", {}).get(OURS)
    if not figures or "read_gb_s" not in figures:
        return
    loaded = sitting["engines"][OURS]["loaded"]
    context = 32 + 128 / 2  # tokens, on average over the steps
    step_bytes = loaded["weight_bytes"] + context * loaded["kv_bytes_per_token"]
    seconds, read = median(figures["step_seconds"]), median(figures["read_gb_s"])
    rate = step_bytes / seconds / 1e9
    yield (
        f"a step of batch 1 takes {seconds * 1e3:.2f} ms and reads {step_bytes / 1e9:.3f} GB: {rate:.1f} GB/s, "
        f"{rate / read:.0%} of the {read:.1f} GB/s read beside it"
    )
