"""A job that is answered again with its earlier answers as drafts: unchanged, and with one line in ten changed.

    scripts/benchmark speculation-replay --shape 0.6b --quantization int8

A model of random weights answers a file by `LLM.batch`, sampled. Then the same file is answered with `replay=` naming
the first output, by one row at a time (the first lines only) and by 16; and one in which every tenth line is another
prompt. The answers must be the same bytes as without drafts. Beside it stands what the same prompts and answers reach
as prompts that want all their logits: no replay is faster. All rates are of the answers' tokens over the whole job,
prompts included. One tree after another is open in every round, so that no two hold memory.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from penstock import LLM, SamplingParams

from ..harness import Quantization, ShapeName, median, prompts, random_model, random_weights, seconds_of
from ..machine import Company

CHANGED = 10  # one line in so many


def run(
    lines: int = 500, one_row_lines: int = 100, tokens: int = 64, prompt: int = 16, rows: int = 16, rounds: int = 1,
    temperature: float = 1.0, quantization: Quantization = "int8", shape: ShapeName = "0.6b",
) -> Any:  # fmt: skip
    with random_model(shape) as model, TemporaryDirectory() as place, Company() as company:
        params = SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True)
        job = Job(Path(place), prompts(lines, prompt), params)
        few = Job(Path(place), job.prompts[:one_row_lines], params, "few-")
        open_tree = partial(LLM, model)
        rates: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, each in measured(job, few, open_tree, random_weights(quantization), rows):
                rates.setdefault(name, []).append(each.rate)
                share = f"; {each.accepted / each.drafts:.0%} of {each.drafts:,} drafts accepted" if each.drafts else ""
                print(f"{name:<34} {each.rate:8.1f} tokens/s{share}", flush=True)
    print(company)
    medians = {name: median(each) for name, each in rates.items()}
    bound = medians["prompts with all logits"]
    summary = {
        "one row, times off": medians["one row, replayed"] / medians["one row"],
        "rows, times off": medians[f"{rows} rows, replayed"] / medians[f"{rows} rows"],
        "rows, of the prompts' rate": medians[f"{rows} rows, replayed"] / bound,
        "one in ten changed, of unchanged": medians[f"{rows} rows, one in ten changed"]
        / medians[f"{rows} rows, replayed"],
    }
    print("\n".join(f"{name}: {value:.2f}" for name, value in summary.items()))
    return {"tokens a second": rates, **summary}


class Answered(NamedTuple):
    rate: float
    drafts: int = 0
    accepted: int = 0


def measured(
    job: "Job", few: "Job", open_tree: Callable[..., LLM], options: dict[str, Any], rows: int
) -> Iterator[tuple[str, Answered]]:
    off = {**options, "speculative_config": False}
    with open_tree(max_num_seqs=rows, **off) as llm:
        yield f"{rows} rows", job.answered(llm, "first")
        yield "prompts with all logits", job.as_prompts(llm, "first")
        job.answered(llm, "changed", is_changed=True)
    with open_tree(max_num_seqs=1, **off) as llm:
        yield "one row", few.answered(llm, "first")
    with open_tree(max_num_seqs=1, **options) as llm:
        yield "one row, replayed", few.answered(llm, "again", replay="first")
    with open_tree(max_num_seqs=rows, **options) as llm:
        yield f"{rows} rows, replayed", job.answered(llm, "again", replay="first")
        yield f"{rows} rows, one in ten changed", job.answered(llm, "mixed", replay="first", is_changed=True)
    few.must_equal("first", "again")
    job.must_equal("first", "again")
    job.must_equal("changed", "mixed")


@dataclass
class Job:
    """A file of prompts, and its outputs by name."""

    folder: Path
    prompts: list[list[int]]
    params: SamplingParams
    prefix: str = ""

    def answered(self, llm: LLM, name: str, replay: str | None = None, *, is_changed: bool = False) -> Answered:
        """Answer the file from its beginning."""
        source, output = self.folder / f"{self.prefix}in-{is_changed}.jsonl", self.output(name)
        source.write_text("".join(f"{json.dumps(ids)}\n" for ids in self.lines(is_changed)))
        for path in self.folder.glob(f"{output.name}*"):
            path.unlink()
        more = {} if replay is None else {"replay": self.output(replay)}
        before = llm.stats()
        seconds = seconds_of(lambda: llm.batch(source, output, self.params, use_tqdm=False, raw=True, **more))
        after = llm.stats()
        drafts = after.draft_tokens - before.draft_tokens, after.accepted_tokens - before.accepted_tokens
        return Answered(len(self.prompts) * self.params.max_tokens / seconds, *drafts)

    def lines(self, is_changed: bool) -> list[list[int]]:
        return [
            [ids[0] + 1, *ids[1:]] if is_changed and number % CHANGED == 0 else ids
            for number, ids in enumerate(self.prompts)
        ]

    def as_prompts(self, llm: LLM, name: str) -> Answered:
        """Compute prompts and answers as prompts with the log-probabilities of all their tokens."""
        wholes = [ids + said for ids, said in zip(self.prompts, self.said(name), strict=True)]
        scored = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        seconds = seconds_of(lambda: llm.generate(wholes, scored, use_tqdm=False))
        return Answered(len(wholes) * self.params.max_tokens / seconds)

    def output(self, name: str) -> Path:
        return self.folder / f"{self.prefix}{name}.jsonl"

    def said(self, name: str) -> list[list[int]]:
        return [json.loads(line)["outputs"][0]["token_ids"] for line in self.output(name).read_text().splitlines()]

    def must_equal(self, *names: str) -> None:
        first, second = (self.output(name).read_bytes() for name in names)
        if first != second:
            raise RuntimeError(f"The answers of {self.output(names[1]).name} are not those without drafts.")
