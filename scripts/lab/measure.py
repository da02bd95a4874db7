"""Measures a bundled model by its questions, through the package itself.

    scripts/lab/measure pocket [OPTION=VALUE …]         # held-out questions, and those that were written by hand
    scripts/lab/measure pocket-sight [OPTION=VALUE …]   # held-out questions about pictures

Options are those of `LLM` (`dtype=float32 enforce_eager=true`): number formats, kernels and backends are held to the
same tables. Prints the accuracy by kind; ends with 1 where it is below the bounds: 90 % of all questions, and of pocket
75 % of each kind that is held out.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import LLM
from penstock.frontend.models.model_names import BUNDLED

from .questions import held_out, sight
from .questions.asking import Question, answers
from .questions.by_hand import UNSEEN, by_hand

OVERALL_BOUND, KIND_BOUND = 0.90, 0.75
# Judged is what the model writes, so that a call in a wrong form is no call.
AS_WRITTEN = {"reasoning_parser": "none", "tool_call_parser": "none"}

Rights = dict[str, list[bool]]  # by kind, for each question whether its answer was right


def main() -> int:
    arguments = parsed()
    measure = {"pocket": measure_pocket, "pocket-sight": measure_sight}[arguments.model]
    options = (AS_WRITTEN if arguments.model == "pocket" else {}) | dict(arguments.options)
    with LLM(str(arguments.folder or BUNDLED[arguments.model]), **options) as llm:
        return 0 if measure(llm, arguments) else 1


def measure_pocket(llm: LLM, arguments: argparse.Namespace) -> bool:
    show = arguments.show_wrong
    asked = held_out.questions(arguments.per_kind or held_out.PER_KIND)
    columns = {"right": judged(llm, asked, show)}
    if arguments.silent:
        silenced = [question.silently() for question in asked if not question.needs_thoughts]
        columns["without thinking"] = judged(llm, silenced, show)
    print(table(columns))
    hand = judged(llm, by_hand(), show)
    print(f"\n{sum(map(len, hand.values()))} questions written by hand\n{table({'right': hand})}")
    # Never shown: who trains on what went wrong there has nothing left that says what a stranger meets.
    unseen = judged(llm, by_hand(UNSEEN), show_wrong=False)
    count = sum(map(len, unseen.values()))
    print(f"\n{count} by another hand, never looked at in training\n{table({'right': unseen})}")
    by_kind = columns["right"]
    worst = min(sum(right) / len(right) for right in by_kind.values())
    return min(share(by_kind), share(hand)) >= OVERALL_BOUND and worst >= KIND_BOUND


def measure_sight(llm: LLM, arguments: argparse.Namespace) -> bool:
    rights = judged(llm, sight.questions(arguments.per_kind or sight.PER_KIND), arguments.show_wrong)
    print(table({"right": rights}))
    return share(rights) >= OVERALL_BOUND


def judged(llm: LLM, asked: Sequence[Question], show_wrong: bool) -> Rights:
    started, by_kind = time.monotonic(), defaultdict(list)
    for question, answer in zip(asked, answers(llm, asked), strict=True):
        is_right = question.is_answered_by(answer)
        by_kind[question.kind].append(is_right)
        if show_wrong and not is_right:
            print(f"{question.kind}: {question.messages[-1]['content']!r}\n  {question.expected!r}\n  {answer!r}")
    print(f"{len(asked):,} questions in {time.monotonic() - started:.0f} s")
    return by_kind


def table(columns: Mapping[str, Rights]) -> str:
    lines = [f"| kind | questions | {' | '.join(columns)} |", "| --- " * (len(columns) + 2) + "|"]
    for kind, right in columns["right"].items():
        lines.append(_line(kind, len(right), [rights.get(kind, []) for rights in columns.values()]))
    every = [[is_right for right in rights.values() for is_right in right] for rights in columns.values()]
    return "\n".join([*lines, _line("**all**", len(every[0]), every)])


def _line(name: str, count: int, columns: list[list[bool]]) -> str:
    shares = [f"{sum(right) / len(right):.1%}" if right else "" for right in columns]
    return f"| {name} | {count:,} | {' | '.join(shares)} |"


def share(by_kind: Rights) -> float:
    """The share of right answers among all."""
    every = [is_right for right in by_kind.values() for is_right in right]
    return sum(every) / len(every)


def option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not an option of LLM in the form NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/lab/measure", description="Measure a bundled model.")
    parser.add_argument("model", choices=list(BUNDLED))
    parser.add_argument("options", nargs="*", type=option, metavar="NAME=VALUE", help="options of LLM")
    parser.add_argument("--folder", type=Path, help="weights trained anew, instead of the bundled ones")
    parser.add_argument("--per-kind", type=int, help="how many held-out questions of each kind")
    parser.add_argument("--show-wrong", action="store_true", help="print every wrong answer")
    again = "ask pocket what needs no thoughts once more with enable_thinking=False"
    parser.add_argument("--silent", action="store_true", help=again)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    sys.exit(main())
