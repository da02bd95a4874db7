"""Measures pocket-sight by its held-out questions: python scripts/measure_pocket_sight.py [--model FOLDER].

Prints the accuracy by kind; ends with 1 where it is below 90 % of all.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from pocket_sight_questions import PER_KIND, Question, questions  # noqa: E402

BOUND = 0.90
MAX_TOKENS = 60
AT_ONCE = 32

Rights = dict[str, list[bool]]  # by kind, for each question whether its answer was right


def main() -> int:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    asked = questions(arguments.per_kind)
    started = time.monotonic()
    answers = answered(arguments.model, asked)
    print(f"{len(asked):,} questions in {time.monotonic() - started:.0f} s")
    rights: Rights = defaultdict(list)
    for question, answer in zip(asked, answers, strict=True):
        rights[question.kind].append(question.is_answered_by(answer))
        if arguments.show_wrong and not rights[question.kind][-1]:
            print(f"{question.kind}: {question.text!r}\n  {question.expected!r}\n  {answer!r}")
    print(table(rights))
    return 0 if share([right for each in rights.values() for right in each]) >= BOUND else 1


def answered(folder: Path, asked: Sequence[Question]) -> list[str]:
    """Greedy answers, in the questions' order, through transformers' classes."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")
    processor = Qwen2VLImageProcessorPil(**json.loads((folder / "preprocessor_config.json").read_text()))
    answers = [""] * len(asked)
    # Questions of about one length together.
    order = sorted(range(len(asked)), key=lambda number: (len(asked[number].images), len(asked[number].text)))
    for start in range(0, len(order), AT_ONCE):
        numbers = order[start : start + AT_ONCE]
        for number, text in zip(numbers, _answered_together(model, tokenizer, processor, [asked[n] for n in numbers])):
            answers[number] = text
    return answers


@torch.inference_mode()
def _answered_together(
    model: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    processor: Qwen2VLImageProcessorPil,
    asked: Sequence[Question],
) -> list[str]:
    shown = [image for question in asked for image in question.images]
    pictures = processor(images=shown, return_tensors="pt") if shown else {}
    sizes = iter([int(grid.prod()) // processor.merge_size**2 for grid in pictures.get("image_grid_thw", ())])
    prompts = [_prompt(tokenizer, question, sizes) for question in asked]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    inputs["mm_token_type_ids"] = (inputs["input_ids"] == model.config.image_token_id).int()
    inputs.pop("token_type_ids", None)
    made = model.generate(**inputs, **pictures, max_new_tokens=MAX_TOKENS, do_sample=False)
    return tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def _prompt(tokenizer: PreTrainedTokenizerFast, question: Question, sizes: Iterator[int]) -> str:
    """As the template renders it, each picture's placeholder as often as the picture has rows."""
    parts = [*({"type": "image"} for _ in question.images), {"type": "text", "text": question.text}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": parts}], tokenize=False, add_generation_prompt=True
    )
    pieces = text.split("<|image_pad|>")
    return pieces[0] + "".join("<|image_pad|>" * next(sizes) + piece for piece in pieces[1:])


def table(rights: Rights) -> str:
    lines = ["| kind | questions | right |", "| --- | --- | --- |"]
    lines += [f"| {kind} | {len(each):,} | {share(each):.1%} |" for kind, each in rights.items()]
    every = [right for each in rights.values() for right in each]
    return "\n".join([*lines, f"| **all** | {len(every):,} | {share(every):.1%} |"])


def share(rights: Sequence[bool]) -> float:
    return sum(rights) / len(rights)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure pocket-sight by its held-out questions.")
    parser.add_argument("--model", type=Path, default=ROOT / "frontend" / "pocket_sight")
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--show-wrong", action="store_true", help="print every wrong answer")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
