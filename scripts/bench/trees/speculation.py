"""Speculation on and off: tokens a second by kind of work at batch 1, and of many rows together.

    scripts/benchmark speculation --shape 0.6b --quantization int8
    scripts/benchmark speculation --shape 4b --quantization int4 --texts 1 --rounds 1
    scripts/benchmark speculation --methods draft_model --rows 1
    scripts/benchmark speculation --methods mtp --rows 1

A model answers with given texts (scripts/bench/scripted says how, and what they are made of); that it does is checked
first, sampled, and again in every round. One tree has speculation off, one more has each of the methods. An answer's
prompt is computed before its time begins. No answer drafts another: each text, and each batch, has a cache_salt of its
own in every round. Acceptance stands beside each figure: drafts accepted of drafts made, and tokens a step and row. The
rows of a batch are several texts in turns; copies of one have the same beginning, and end together. A draft model and
the model's own head (mtp) agree on 60 % of the tokens; the text's own drafts come first even then, so their part shows
in chat.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from penstock import LLM, SamplingParams

from ..harness import Quantization, ShapeName, alternated, greedy, median, ratios, seconds_of
from ..machine import Company
from ..models import SHAPES
from ..scripted.checkpoint import MODELS, write_scripted
from ..scripted.scripts import DISTANCE, Script, scripts_of

OFF = "off"
DRAFT_SHAPE = "quarter"
BATCH_TOKENS = 128  # of each answer in a batch, at most
BATCH_CHATS = 4  # different ones
CHECKED_AT = 0.7  # a temperature at which a logit that wins by little would not win always
_SALTS = count()


def run(
    shape: ShapeName = "0.6b", quantization: Quantization = "int8", methods: tuple[str, ...] = ("auto",),
    texts: int = 2, rounds: int = 3, rows: int = 16, temperature: float = 0.0, models: Path = MODELS,
) -> Any:  # fmt: skip
    drafts_itself = "mtp" in methods
    folder = models / shape / ("with a head" if drafts_itself else "checkpoint")
    write_scripted(folder, shape, drafts_itself=drafts_itself)
    kinds = scripts_of(models / "tokenizer.json", SHAPES[shape]["vocab_size"])
    chosen = {kind: scripts[:texts] for kind, scripts in kinds.items()}
    with Company() as company, ExitStack() as stack:
        trees = {
            name: stack.enter_context(tree(folder, quantization, rows, speculation(name, models)))
            for name in (OFF, *methods)
        }
        answered(trees[OFF], [*chain(*chosen.values())], CHECKED_AT)
        for method in methods:
            answered(trees[method], kinds["code"][:1], temperature)  # warm, as the first tree is by now
        sitting = Sitting(trees, rounds, temperature)
        for kind, scripts in chosen.items():
            sitting.measure(kind, [[script] for script in scripts])
        if rows > 1:
            sitting.measure(f"{rows} mixed", [in_turns(chain(*zip(*chosen.values(), strict=False)), rows)])
            sitting.measure(f"{rows} chats", [in_turns(kinds["chat"][:BATCH_CHATS], rows)])
    print(company)
    return sitting.figures


def speculation(method: str, models: Path) -> Any:
    """The `speculative_config` of a method."""
    if method != "draft_model":
        return {OFF: False, "auto": None}.get(method, {"method": method})
    folder = models / DRAFT_SHAPE / "checkpoint"
    write_scripted(folder, DRAFT_SHAPE, is_draft=True)
    return {"method": method, "model": str(folder)}


def tree(folder: Path, quantization: str, rows: int, speculative_config: Any) -> LLM:
    return LLM(
        folder, quantization=None if quantization == "none" else quantization, max_num_seqs=rows,
        max_model_len=2 * (DISTANCE + 1), enable_prefix_caching=True, kv_cache_memory="3GiB", quiet=True,
        speculative_config=speculative_config,
    )  # fmt: skip


def in_turns(scripts: Iterable[Script], rows: int) -> list[Script]:
    return [script._replace(answer=script.answer[:BATCH_TOKENS]) for script in islice(cycle(scripts), rows)]


# --- measuring --------------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    tokens: int
    seconds: float
    drafts: int
    accepted: int


def answered(llm: LLM, scripts: list[Script], temperature: float) -> Measured:
    """Answer the scripts together, with their prompts computed before."""
    salt = f"benchmark {next(_SALTS)}"
    prompts = [{"prompt_token_ids": script.prompt, "cache_salt": salt} for script in scripts]
    llm.generate(prompts, greedy(1), use_tqdm=False)
    params = [
        SamplingParams(temperature=temperature, max_tokens=len(script.answer), ignore_eos=True) for script in scripts
    ]
    outputs: list[Any] = []
    seconds = seconds_of(lambda: outputs.extend(llm.generate(prompts, params, use_tqdm=False)))
    for script, output in zip(scripts, outputs, strict=True):
        if list(output.outputs.token_ids) != script.answer:
            raise RuntimeError(f"{script.kind}, {script.name}: the answer isn't the text. {output.error_msg or ''}")
    drafts = sum(output.metrics.num_draft_tokens for output in outputs)
    accepted = sum(output.metrics.num_accepted_tokens for output in outputs)
    return Measured(sum(len(script.answer) for script in scripts), seconds, drafts, accepted)


@dataclass
class Sitting:
    trees: dict[str, LLM]
    rounds: int
    temperature: float
    figures: dict[str, Any] = field(default_factory=dict)

    def measure(self, name: str, waves: list[list[Script]]) -> None:
        """Let all trees answer the waves in every round, one wave after the other."""
        parts: dict[str, list[Measured]] = {each: [] for each in self.trees}

        def rate(method: str) -> float:
            waves_of = [answered(self.trees[method], wave, self.temperature) for wave in waves]
            whole = Measured(*map(sum, zip(*waves_of, strict=True)))
            parts[method].append(whole)
            return whole.tokens / whole.seconds

        rates = alternated({method: partial(rate, method) for method in self.trees}, self.rounds)
        times = ratios(rates, OFF)
        self.figures[name] = {method: figure(rates[method], parts[method], times.get(method)) for method in self.trees}
        print(line(name, self.figures[name]), flush=True)


def figure(rates: list[float], parts: list[Measured], ratio: float | None) -> dict[str, Any]:
    drafts, accepted = sum(part.drafts for part in parts), sum(part.accepted for part in parts)
    tokens = sum(part.tokens for part in parts)
    return {
        "tokens a second": rates, "times off": ratio, "drafts": drafts, "accepted": accepted,
        "tokens a step": tokens / (tokens - accepted),
    }  # fmt: skip


def line(name: str, figures: dict[str, dict[str, Any]]) -> str:
    """Medians, and what was accepted."""
    shown = [f"{name:<9} {OFF} {median(figures[OFF]['tokens a second']):7.1f} tokens/s"]
    for method, each in figures.items():
        if method != OFF:
            rate, share = median(each["tokens a second"]), each["accepted"] / max(each["drafts"], 1)
            shown.append(
                f"{method} {rate:7.1f}, {each['times off']:.2f} x; {share:4.0%} of {each['drafts']:,} drafts accepted, "
                f"{each['tokens a step']:.2f} tokens a step"
            )
    return " | ".join(shown)
