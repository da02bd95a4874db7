"""The loop that people write with transformers: some lines at a time, whose answers are appended as they are there.

A second start begins again.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LINES = 32  # at a time


def answerer(name: str) -> Callable[[list[dict[str, Any]]], list[str]]:
    """A function from the bodies of some lines to their answers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    # Any token will do, since it is masked.
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).eval()

    def answers(bodies: list[dict[str, Any]]) -> list[str]:
        texts = [
            tokenizer.apply_chat_template(body["messages"], tokenize=False, add_generation_prompt=True)
            for body in bodies
        ]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        most = max(body["max_tokens"] for body in bodies)
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        with torch.inference_mode():
            rows = model.generate(**inputs, max_new_tokens=most, min_new_tokens=most, do_sample=False)
        return tokenizer.batch_decode(rows[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)

    return answers


def line_of(custom_id: str, text: str) -> str:
    """A line as OpenAI's output files have it, as far as it is compared."""
    body = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    return json.dumps({"custom_id": custom_id, "response": {"status_code": 200, "body": body}}) + "\n"


def groups(path: Path) -> Iterator[list[dict[str, Any]]]:
    with path.open() as file:
        while lines := list(map(json.loads, itertools.islice(file, LINES))):
            yield lines


def main() -> None:
    source, output, name = sys.argv[1:]
    answers = answerer(name)
    with open(output, "w") as file:
        for group in groups(Path(source)):
            texts = answers([line["body"] for line in group])
            file.writelines(line_of(line["custom_id"], text) for line, text in zip(group, texts, strict=True))
            file.flush()


if __name__ == "__main__":
    main()
