"""Counts real schemas: those right with all their instances, those refused and why, and those with mistakes.

Each file of FOLDER is as MaskBench has them: `{"schema": …, "tests": [{"data": …, "valid": …}]}`. An instance is
tried as it is written there. Of a valid one that is refused, the text before the first byte that does
not fit is shown: most often the next property stands before it in the schema.
"""

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.engine.grammar.matcher import Matcher
from penstock.protocol.errors import RequestError

from ..machine import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from builders.schemas import accepts, ids, matcher


def run(folder: Path) -> None:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    longest = 0.0
    for path in sorted(folder.glob("*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        begin = time.perf_counter()
        compiled, reason = _compiled(entry["schema"])
        longest = max(longest, time.perf_counter() - begin)
        kind = "refused" if compiled is None else _kind(compiled, entry["tests"])
        counts[kind] += 1
        if compiled is None:
            reasons[re.sub(r"\(at .*?\)|'[^']*'", "…", reason)[:110]] += 1
        elif kind != "right":
            print(f"{path.stem}: {kind}")
    total = sum(counts.values())
    print(f"{total} schemas; the longest was compiled in {longest:.2f} s")
    for kind, count in counts.most_common():
        print(f"{count:6} {count / total:6.1%}  {kind}")
    for reason, count in reasons.most_common():
        print(f"{count:6}         {reason}")


def _compiled(schema: Any) -> tuple[Matcher | None, str]:
    try:
        compiled = matcher(json=schema)
    except RequestError as error:
        return None, str(error)
    return (compiled, "") if compiled.error is None else (None, compiled.error)


def _kind(compiled: Matcher, instances: list[dict[str, Any]]) -> str:
    texts = [json.dumps(instance["data"], ensure_ascii=False) for instance in instances]
    accepted = [accepts(compiled, text) for text in texts]
    if any(is_in and not instance["valid"] for is_in, instance in zip(accepted, instances, strict=True)):
        return "wrongly let through"
    for is_in, text, instance in zip(accepted, texts, instances, strict=True):
        if instance["valid"] and not is_in:
            print(f"  stops behind …{_accepted_start(compiled, text)[-60:]}")
            return "wrongly refused"
    return "right"


def _accepted_start(compiled: Matcher, text: str) -> str:
    state, length = compiled.fork(), 0
    tokens = ids(text)
    while length < len(tokens) and state.take(tokens[length : length + 1]):
        length += 1
    return text.encode()[:length].decode(errors="ignore")
