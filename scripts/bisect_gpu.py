"""Whose fault a wrong answer is: trees with one way of kernels/triton/launch/switches.py at a time, and the CPU.

    python scripts/bisect_gpu.py                        # on a card, a row for each switch
    python scripts/bisect_gpu.py --device cpu --small   # interpreted, to try the script

In float32 greedy tokens are the CPU's; with 4-bit weights a prompt's tokens are about as likely. A row is a tree in a
process of its own, with every switch off but the one that it is called by.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu_figures.cpu_answers import on_cpu

from penstock.kernels.triton.launch.switches import KERNEL_TUNING, SWITCHES

_AT_ONCE = 4
_SECONDS, _SECONDS_INTERPRETED = 120, 1200
_APART = 0.3  # of log-probabilities in the mean; a wrong kernel is off by more than 1
_MODEL = {"max_model_len": 2048, "max_num_seqs": 8, "kv_cache_memory": "256MiB", "quiet": True}
_FORMS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "int4": {"dtype": "bfloat16", "quantization": "wint4"},
}


def answers(device: str, form: str, is_small: bool) -> dict[str, Any]:
    """Of a tree in this process: greedy tokens, and how likely the prompts' tokens are."""
    from penstock import LLM, SamplingParams

    # The longest has so many tokens that special ways for many rows are taken.
    lengths = (9, 20) if is_small else (9, 40, 300, 1500, 5, 64)
    prompts = [[(11 * place + length) % 1400 + 10 for place in range(length)] for length in lengths]
    params = SamplingParams(temperature=0, max_tokens=3 if is_small else 24, prompt_logprobs=0, ignore_eos=True)
    # Trees that start on one card do so one after another, so only what is about a warm-up has one.
    with LLM("pocket", device=device, use_warmup=KERNEL_TUNING.is_on, **_MODEL, **_FORMS[form]) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    likely = [
        entry[token].logprob
        for output in outputs
        for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True)
    ]
    return {"tokens": [list(output.outputs.token_ids) for output in outputs], "likely": likely}


def expected_of(form: str, is_small: bool) -> dict[str, Any] | str:
    def computed() -> dict[str, Any]:
        told = found("cpu", form, is_small, {})
        if isinstance(told, str):
            raise RuntimeError(told)
        return told

    try:
        return on_cpu(f"switches-{form}{'-small' if is_small else ''}", computed)
    except RuntimeError as error:
        return str(error)


def found(device: str, form: str, is_small: bool, environment: dict[str, str]) -> dict[str, Any] | str:
    """The same by a process with these variables; a sentence if it failed."""
    seconds = _SECONDS_INTERPRETED if is_small else _SECONDS
    words = [sys.executable, __file__, "--device", device, "--answers", form, *["--small"] * is_small]
    try:
        told = subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, env={**os.environ, **environment}, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds} s"
    if told.returncode:
        return (told.stderr.strip().splitlines() or ["it ended without a word"])[-1][:120]
    return json.loads(told.stdout.splitlines()[-1])


def verdict(one: dict[str, Any] | str, other: dict[str, Any] | str, form: str) -> str:
    if isinstance(one, str) or isinstance(other, str):
        return f"FAILED: {one if isinstance(one, str) else other}"
    if form == "float32":
        return "right" if one["tokens"] == other["tokens"] else "WRONG tokens"
    apart = statistics.mean(abs(a - b) for a, b in zip(one["likely"], other["likely"], strict=True))
    return f"{'right' if apart < _APART else 'WRONG'}, {apart:.3f} apart"


def rows(is_small: bool) -> dict[str, dict[str, str]]:
    """Variables by the row's name."""
    all_off = {switch.variable: "0" for switch in SWITCHES}
    alone = {f"{switch.variable} alone": {**all_off, switch.variable: "1"} for switch in SWITCHES}
    if is_small:
        alone = dict(list(alone.items())[:1])
    return {"everything off": all_off, **alone, "as it is": {}, "everything on": dict.fromkeys(all_off, "1")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="short prompts and few rows")
    parser.add_argument("--prepare", action="store_true", help="only the CPU's answers, which are kept if asked for")
    parser.add_argument("--answers", choices=_FORMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        for form in _FORMS:
            expected_of(form, arguments.small)
        return
    if arguments.answers:
        print(json.dumps(answers(arguments.device, arguments.answers, arguments.small)))
        return
    interpreted = {"TRITON_INTERPRET": "1"} if arguments.device == "cpu" else {}
    forms = ["float32"] if arguments.small else list(_FORMS)
    cases = [(name, form, {**own, **interpreted}) for name, own in rows(arguments.small).items() for form in forms]
    with ThreadPoolExecutor(2 if arguments.small else _AT_ONCE) as threads:
        expected = {form: threads.submit(expected_of, form, arguments.small) for form in forms}
        trees = [threads.submit(found, arguments.device, form, arguments.small, own) for _, form, own in cases]
        for (name, form, _), tree in zip(cases, trees, strict=True):
            told = verdict(tree.result(), expected[form].result(), form)
            print(f"{name:<40} {form:<8} {told}", flush=True)


if __name__ == "__main__":
    main()
