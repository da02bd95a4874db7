"""Measures pocket-sight by its held-out questions, through the package itself.

    python scripts/measure_pocket_sight.py [OPTION=VALUE …]

Options are those of `LLM` (`dtype=float32`): number formats, kernels and backends are held to the same table. Prints
the accuracy by kind; ends with 1 where it is below 90 % of all.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure_pocket import OVERALL_BOUND, Rights, option, share, table
from pocket_questions.sight import PER_KIND, Question, questions

from penstock import LLM, SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=64)
AT_ONCE = 256


def main() -> int:
    arguments = _arguments()
    asked = questions(arguments.per_kind)
    with LLM(str(arguments.model), **dict(arguments.options)) as llm:
        started = time.monotonic()
        answers = answered(llm, asked)
        print(f"{len(asked):,} questions in {time.monotonic() - started:.0f} s")
    rights: Rights = {}
    for question, answer in zip(asked, answers, strict=True):
        rights.setdefault(question.kind, []).append(question.is_answered_by(answer))
        if arguments.show_wrong and not rights[question.kind][-1]:
            print(f"{question.kind}: {question.text!r}\n  {question.expected!r}\n  {answer!r}")
    print(table({"right": rights}))
    return 0 if share(rights) >= OVERALL_BOUND else 1


def answered(llm: LLM, asked: Sequence[Question]) -> list[str]:
    """Greedy answers, in the questions' order."""
    answers: list[str] = []
    for start in range(0, len(asked), AT_ONCE):
        conversations = [_conversation(question) for question in asked[start : start + AT_ONCE]]
        answers += [output.outputs.text for output in llm.chat(conversations, PARAMS, use_tqdm=False)]
    return answers


def _conversation(question: Question) -> list[dict[str, Any]]:
    pictures = [{"type": "image", "image": image} for image in question.images]
    return [{"role": "user", "content": [*pictures, {"type": "text", "text": question.text}]}]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure pocket-sight by its held-out questions.")
    parser.add_argument("options", nargs="*", type=option, metavar="NAME=VALUE", help="options of LLM")
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parents[1] / "frontend" / "pocket_sight")
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--show-wrong", action="store_true", help="print every wrong answer")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
