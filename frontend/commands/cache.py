"""List what Penstock keeps on disk for later, or remove some of it: `penstock cache prune`. Nothing is removed that a
running model uses. Everything can be made again, except downloads, which are removed only where you name them.
"""

import argparse
import json
import re
import sys
import time
from datetime import datetime
from pathlib import Path

from ...protocol.errors import PenstockError
from ...protocol.files.sizes import size
from ...protocol.options.option_rules import size as size_in_bytes
from ..console.printable import aligned, on_one_line
from .shared.disk_use import KINDS, LISTED_ONLY, Kept, all_kept

USAGE = "[prune [KIND|MODEL ...]] [options]"

_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_ONLY_BY_NAME = {"downloads"}
_PRUNED = ", ".join(kind for kind in KINDS if kind not in LISTED_ONLY)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = f"without it, list; `prune` removes, of these kinds or models: {_PRUNED}; files and logs are listed only"
    parser.add_argument("action", metavar="prune [KIND|MODEL ...]", nargs="*", help=words)
    parser.add_argument("--older-than", metavar="AGE", type=_age, help="remove what is unused for 12h, 30d, 8w")
    parser.add_argument(
        "--size", metavar="SIZE", type=_bytes, help="remove what is unused longest, until SIZE are left"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--prefix-cache-dir", metavar="DIR", type=Path, help="include this folder of prefixes")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """List or prune. Exit status 1 if something could not be removed."""
    words = arguments.action
    is_pruning = bool(words) and words[0] == "prune"
    if words and not is_pruning:
        parser.error(f"{words[0]!r} is no action; `penstock cache prune {words[0]}` removes it.")
    found = all_kept(arguments.prefix_cache_dir)
    if not is_pruning:
        if arguments.older_than is not None or arguments.size is not None or arguments.dry_run:
            parser.error("--older-than, --size and --dry-run belong to `penstock cache prune`.")
        _show(found, arguments.json)
        return 0
    chosen = _chosen(found, words[1:], parser)
    if not words[1:] and arguments.older_than is None and arguments.size is None:
        parser.error("say what to remove: a kind, a model, --older-than AGE or --size SIZE.")
    removed, remarks, failed = _prune(
        _removable(chosen, arguments.older_than, arguments.size), is_real=not arguments.dry_run
    )
    for remark in remarks:
        print(remark, file=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        print(json.dumps({"removed": [_as_json(each) for each in removed], "freed": _sum(removed)}, ensure_ascii=False))
    else:
        for each in removed:
            print(f"{each.kind}: {on_one_line(each.model)}, {size(each.num_bytes)}")
        print(f"{size(_sum(removed))} {'would be' if arguments.dry_run else 'are'} freed.")
    return 1 if failed else 0


def _chosen(found: list[Kept], words: list[str], parser: argparse.ArgumentParser) -> list[Kept]:
    """Return what the words name; without any, all that can be made again."""
    for word in words:
        if word in LISTED_ONLY:
            parser.error(f"{word} are listed only: their owners remove them.")
        if word not in KINDS and not any(_is_of(each, word) for each in found):
            parser.error(f"{word!r} is neither a kind ({_PRUNED}) nor a model of which something is kept.")
    if not words:
        return [each for each in found if each.kind not in LISTED_ONLY | _ONLY_BY_NAME]
    named = [each for each in found if each.kind in words or any(_is_of(each, word) for word in words)]
    return [each for each in named if each.kind not in LISTED_ONLY]


def _is_of(kept: Kept, word: str) -> bool:
    return kept.model == word or kept.model.startswith(f"{word}, rank ")


def _removable(chosen: list[Kept], age: float | None, most_bytes: int | None) -> list[Kept]:
    """Return what is to go, used longest ago first."""
    by_use = sorted(chosen, key=lambda kept: kept.last_use)
    if age is not None:
        by_use = [each for each in by_use if each.last_use < time.time() - age]
    if most_bytes is None:
        return by_use
    left, going = _sum(chosen), []
    for each in by_use:
        if left > most_bytes and not each.is_in_use:
            going.append(each)
            left -= each.num_bytes
    return going


def _prune(going: list[Kept], *, is_real: bool) -> tuple[list[Kept], list[str], bool]:
    """Remove what isn't in use; returns what is gone, remarks about the rest, and whether some could not be removed."""
    removed, remarks, failed = [], [], False
    for each in going:
        if each.is_in_use:
            remarks.append(f"{each.kind}: {on_one_line(each.model)} is in use and stays.")
            continue
        try:
            if is_real:
                each.remove()
            removed.append(each)
        except (PenstockError, OSError) as error:
            remarks.append(f"{each.kind}: {on_one_line(each.model)} stays: {error}")
            failed = True
    return removed, remarks, failed


def _show(found: list[Kept], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_json(each) for each in found], ensure_ascii=False))
        return
    rows: list[tuple[str, ...]] = [("kind", "size", "last use", "", "of")]
    for each in found:
        used = datetime.fromtimestamp(each.last_use).strftime("%Y-%m-%d %H:%M")
        state = "in use" if each.is_in_use else ""
        rows.append((each.kind, size(each.num_bytes), used, state, on_one_line(each.model)))
    print("\n".join(aligned(rows, right=(1,))))
    print(f"\n{size(_sum(found))} in all. `penstock cache prune` removes some of it.")


def _as_json(kept: Kept) -> dict[str, object]:
    return {
        "kind": kept.kind,
        "model": kept.model,
        "bytes": kept.num_bytes,
        "last_use": datetime.fromtimestamp(kept.last_use).astimezone().isoformat(timespec="seconds"),
        "in_use": kept.is_in_use,
        "path": str(kept.path),
    }


def _sum(kept: list[Kept]) -> int:
    return sum(each.num_bytes for each in kept)


def _age(word: str) -> float:
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", word)):
        raise argparse.ArgumentTypeError(f"{word!r} must be a number with m, h, d or w, such as 30d")
    return float(found[1]) * _SECONDS[found[2]]


def _bytes(word: str) -> int:
    try:
        return 0 if word == "0" else size_in_bytes(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} must be bytes, or a size such as 20GiB") from None
