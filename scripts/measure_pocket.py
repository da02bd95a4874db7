"""Measures pocket by its held-out questions and by those that were written by hand, through the package itself.

    python scripts/measure_pocket.py [OPTION=VALUE …]

Options are those of `LLM` (`dtype=float32 enforce_eager=true`): number formats, kernels and backends are held to the
same tables. Prints the accuracy by kind; ends with 1 where it is below the bounds.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pocket_questions.by_hand import UNSEEN, HandQuestion, answers_by_hand, by_hand
from pocket_questions.held_out import PER_KIND, Question, questions

from penstock import LLM, SamplingParams

OVERALL_BOUND, KIND_BOUND = 0.90, 0.75
MAX_TOKENS = 200

Rights = dict[str, list[bool]]  # by kind, for each question whether its answer was right


def main() -> int:
    arguments = _arguments()
    asked = questions(arguments.per_kind)
    # Judged is what the model writes, so that a call in a wrong form is no call.
    as_written = {"reasoning_parser": "none", "tool_call_parser": "none"}
    with LLM(str(arguments.model), **(as_written | dict(arguments.options))) as llm:
        started = time.monotonic()
        columns = {"right": right_by_kind(llm, asked, arguments.show_wrong)}
        print(f"{len(asked):,} questions in {time.monotonic() - started:.0f} s")
        if arguments.silent:
            silenced = [question.silently() for question in asked if not question.needs_thoughts]
            columns["without thinking"] = right_by_kind(llm, silenced, arguments.show_wrong)
        hand = {"right": right_by_hand(llm, by_hand(), arguments.show_wrong)}
        # Never shown: who trains on what went wrong there has nothing left that says what a stranger meets.
        unseen = {"right": right_by_hand(llm, by_hand(UNSEEN), show_wrong=False)}
    print(table(columns))
    print(f"\n{sum(map(len, hand['right'].values()))} questions written by hand\n{table(hand)}")
    print(f"\n{sum(map(len, unseen['right'].values()))} by another hand, never looked at in training\n{table(unseen)}")
    return 0 if holds(columns["right"]) and share(hand["right"]) >= OVERALL_BOUND else 1


def right_by_hand(llm: LLM, asked: list[HandQuestion], show_wrong: bool) -> Rights:
    return judged(asked, answers_by_hand(llm, asked), show_wrong)


def right_by_kind(llm: LLM, asked: list[Question], show_wrong: bool) -> Rights:
    return judged(asked, answered(llm, asked), show_wrong)


def judged(asked: Sequence[Question | HandQuestion], answers: list[str], show_wrong: bool) -> Rights:
    by_kind: Rights = defaultdict(list)
    for question, answer in zip(asked, answers, strict=True):
        is_right = question.is_answered_by(answer)
        by_kind[question.kind].append(is_right)
        if show_wrong and not is_right:
            print(f"{question.kind}: {question.messages[-1]['content']!r}\n  {question.expected!r}\n  {answer!r}")
    return by_kind


def answered(llm: LLM, asked: list[Question]) -> list[str]:
    """Greedy answers, in the questions' order. One batch holds what shares tools and the template's options."""
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
    order = sorted(range(len(asked)), key=lambda place: _batch_key(asked[place]))
    answers = [""] * len(asked)
    for _, group in groupby(order, key=lambda place: _batch_key(asked[place])):
        places = list(group)
        first = asked[places[0]]
        outputs = llm.chat(
            [asked[place].messages for place in places],
            params,
            use_tqdm=False,
            chat_template_kwargs=first.template_options,
            tools=first.tools,
        )
        for place, output in zip(places, outputs, strict=True):
            answers[place] = output.outputs.text
    return answers


def _batch_key(question: Question) -> str:
    return json.dumps([question.tools, dict(question.template_options)])


def table(columns: Mapping[str, Rights]) -> str:
    lines = [f"| kind | questions | {' | '.join(columns)} |", "| --- " * (len(columns) + 2) + "|"]
    counted = columns["right"]
    for kind, right in counted.items():
        lines.append(_line(kind, len(right), [rights.get(kind, []) for rights in columns.values()]))
    every = [[is_right for right in rights.values() for is_right in right] for rights in columns.values()]
    return "\n".join([*lines, _line("**all**", len(every[0]), every)])


def _line(name: str, count: int, columns: list[list[bool]]) -> str:
    return f"| {name} | {count:,} | {' | '.join(_share(right) for right in columns)} |"


def holds(by_kind: Rights) -> bool:
    shares = [sum(right) / len(right) for right in by_kind.values()]
    return share(by_kind) >= OVERALL_BOUND and min(shares) >= KIND_BOUND


def share(by_kind: Rights) -> float:
    """What is right of all."""
    every = [is_right for right in by_kind.values() for is_right in right]
    return sum(every) / len(every)


def _share(right: list[bool]) -> str:
    return f"{sum(right) / len(right):.1%}" if right else ""


def option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not an option of LLM in the form NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure pocket by its held-out questions.")
    parser.add_argument("options", nargs="*", type=option, metavar="NAME=VALUE", help="options of LLM")
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parents[1] / "frontend" / "pocket")
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--show-wrong", action="store_true", help="print every wrong answer")
    parser.add_argument(
        "--silent", action="store_true", help="ask what needs no thoughts once more with enable_thinking=False"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
