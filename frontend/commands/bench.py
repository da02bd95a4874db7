"""Measure how fast a model runs on this machine: one request alone, then several together. Prompts are random tokens,
answers have a fixed length, and the prefix cache is off. A model that gives numbers has no answers: its texts are
counted. Other running programs slow the figures down.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from functools import partial

from ...protocol.errors import PenstockError
from ...protocol.options.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.sampling import SamplingParams
from ..llm import LLM
from .shared.loading import load
from .shared.model_options import checked_options, require_model
from .shared.options import add_options, add_verbose, obey_verbose
from .shared.termination import orderly_termination

USAGE = "MODEL [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id")
    for name, default, words in (
        ("--input-tokens", 128, "tokens per prompt"),
        ("--output-tokens", 64, "tokens per answer"),
        ("--requests", 8, "requests to run together"),
    ):
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{words} ({default})")
    add_verbose(parser)
    add_options(parser, "engine options", EngineConfig, leave_out=("model", "connect", "enable_prefix_caching"))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    for name in ("input_tokens", "output_tokens", "requests"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    obey_verbose(arguments)
    config, options, _ = checked_options(arguments, parser)
    require_model(config)
    params = SamplingParams(temperature=0, max_tokens=arguments.output_tokens, ignore_eos=True)
    with orderly_termination(), load(config.model, {**options, "enable_prefix_caching": False}) as llm:
        size = len(llm.get_tokenizer())
        if llm._session.pooled is not None:
            heading, row = "   texts  tokens/s   texts/s   all of them", _row_of_numbers
        else:
            heading, row = "requests  in tokens/s  out tokens/s  first token  per token", partial(_row, params)
        row(llm, _prompts(1, 8, size))  # one-time work happens before the clock runs
        print(heading, flush=True)
        for count in dict.fromkeys((1, arguments.requests)):
            print(row(llm, _prompts(count, arguments.input_tokens, size)), flush=True)
    return 0


def _prompts(count: int, length: int, vocab_size: int) -> list[list[int]]:
    numbers = random.Random(0)
    return [numbers.choices(range(vocab_size), k=length) for _ in range(count)]


def _measured(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> tuple[Sequence[RequestOutput], float]:
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    if failed := next((output for output in outputs if output.error_code != 200), None):
        raise PenstockError(failed.error_msg or "A request failed.")
    return outputs, seconds


def _row_of_numbers(llm: LLM, prompts: list[list[int]]) -> str:
    """The row of texts that became numbers."""
    start = time.perf_counter()
    outputs = llm.encode(prompts, use_tqdm=False)
    seconds = time.perf_counter() - start
    if failed := next((output for output in outputs if output.error_code != 200), None):
        raise PenstockError(failed.error_msg or "A text failed.")
    num_tokens = sum(map(len, prompts))
    return (
        f"{len(prompts):>8}  {num_tokens / seconds:>8,.0f}  {len(prompts) / seconds:>8,.1f}  {1000 * seconds:>9,.0f} ms"
    )


def _row(params: SamplingParams, llm: LLM, prompts: list[list[int]]) -> str:
    """Rates of all requests together; times are medians over the requests."""
    outputs, seconds = _measured(llm, prompts, params)
    found = [output.metrics for output in outputs if output.metrics is not None]
    num_in = sum(len(output.prompt_token_ids) for output in outputs)
    num_out = sum(len(output.outputs[0].token_ids) for output in outputs)
    firsts = [each.first_token_time or 0.0 for each in found]
    # All prompts are computed once the last of them has its first token.
    prefill = max(firsts)
    nexts = [
        ((each.time_in_queue or 0.0) + (each.model_execute_time or 0.0) - first) / max(1, each.num_output_tokens - 1)
        for each, first in zip(found, firsts, strict=True)
    ]
    return (
        f"{len(outputs):>8}  {num_in / max(prefill, 1e-9):>11,.0f}  {num_out / seconds:>12,.1f}  "
        f"{1000 * statistics.median(firsts):>8,.0f} ms  {1000 * statistics.median(nexts):>6,.1f} ms"
    )
