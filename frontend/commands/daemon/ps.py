"""Show the daemon's models: state, memory, clients, running and waiting requests, tokens per second.

MEMORY is a model's memory, as `penstock models` predicts it: its weights, and the memory planned for the keys and
values of requests. Rates are measured over half a second. MEDIA is how full the memory for encoded pictures and videos
is.
"""

import argparse
import time
from contextlib import closing

from ....protocol.attach import DaemonStatus, ModelStatus
from ....protocol.files.sizes import size
from ...console.printable import aligned, on_one_line
from ...daemon.background import line_to, status_of
from ..shared.options import add_socket, socket_of
from .status import last_error, span

USAGE = "[options]"

_SECONDS = 0.5
_HEADINGS = (
    "MODEL", "STATE", "SINCE", "MEMORY", "KV USED", "MEDIA", "CLIENTS", "RUNNING", "WAITING", "IN/S", "OUT/S", "CRASHES"
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    with closing(line_to(socket_of(arguments))) as line:
        before, start = status_of(line), time.monotonic()
        time.sleep(_SECONDS)
        after, seconds = status_of(line), time.monotonic() - start
    print("\n".join(table(before, after, seconds, time.time())))
    return 0


def table(before: DaemonStatus, after: DaemonStatus, seconds: float, now: float) -> list[str]:
    earlier = {model.name: model for model in before.models}
    rows = [_HEADINGS, *(_row(earlier.get(model.name), model, seconds, now) for model in after.models)]
    errors = [on_one_line(f"{model.name}: {why}") for model in after.models if (why := last_error(model, now))]
    return aligned(rows) + errors


def _row(earlier: ModelStatus | None, model: ModelStatus, seconds: float, now: float) -> tuple[str, ...]:
    stats = model.stats
    figures = ("-", "-", "-", "-", "-", "-")
    if stats is not None:
        was = earlier.stats if earlier is not None else None
        new_in = stats.prompt_tokens - was.prompt_tokens if was else 0
        new_out = stats.generated_tokens - was.generated_tokens if was else 0
        figures = (
            f"{stats.kv_usage:.0%}",
            f"{stats.media_usage:.0%}" if stats.media_bytes else "-",
            str(stats.running),
            str(stats.waiting),
            f"{max(0, new_in) / seconds:,.0f}",
            f"{max(0, new_out) / seconds:,.0f}",
        )
    used, media, running, waiting, tokens_in, tokens_out = figures
    since, memory = span(now - model.since), size(model.taken_bytes) if model.taken_bytes else "-"
    return (
        on_one_line(model.name), model.state, since, memory, used, media, str(model.clients), running, waiting,
        tokens_in, tokens_out, str(model.restarts),
    )  # fmt: skip
