"""Throughput of a random-weight Qwen3-0.6B against `transformers.generate`, same batch and tokens, in one sitting.

    python scripts/bench_offline.py [--dtype float32] [--rounds 3] [--small]

Two scenarios, alternated: one request (32 in, 64 out), and 32 requests of 16-256 tokens in and 16-128 out. Prints
output tokens per second of each side, their medians and the ratios. transformers decodes a padded batch until its
longest answer is done; both sides count only the tokens asked for.
"""

import argparse
import json
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from bench_harness import machine, median
from bench_models import SHAPES, write_tokenizer
from transformers import AutoModelForCausalLM, Qwen3Config

from penstock import LLM, SamplingParams

Request = tuple[list[int], int]  # prompt, output tokens


def scenarios(vocabulary: int) -> dict[str, list[Request]]:
    chance = random.Random(0)

    def request(tokens_in: int, tokens_out: int) -> Request:
        return [chance.randrange(10, vocabulary) for _ in range(tokens_in)], tokens_out

    mixed = [request(chance.randint(16, 256), chance.randint(16, 128)) for _ in range(32)]
    return {"batch 1 (32 in, 64 out)": [request(32, 64)], "32 mixed (16-256 in, 16-128 out)": mixed}


def by_penstock(llm: LLM, requests: list[Request]) -> float:
    params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for _, count in requests]
    start = time.perf_counter()
    outputs = llm.generate([prompt for prompt, _ in requests], params, use_tqdm=False)
    seconds = time.perf_counter() - start
    assert [len(output.outputs.token_ids) for output in outputs] == [count for _, count in requests]
    return sum(count for _, count in requests) / seconds


def by_transformers(model: torch.nn.Module, requests: list[Request]) -> float:
    longest = max(len(prompt) for prompt, _ in requests)
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt, _ in requests])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in requests])
    most = max(count for _, count in requests)
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            ids, attention_mask=mask, max_new_tokens=most, min_new_tokens=most, do_sample=False, pad_token_id=0
        )
    return sum(count for _, count in requests) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a small shape, to try the script")
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    shape = SHAPES["small" if arguments.small else "0.6b"]
    with TemporaryDirectory() as folder:
        torch.manual_seed(0)
        config = Qwen3Config(**shape, max_position_embeddings=4096, eos_token_id=2, bos_token_id=1)
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, arguments.dtype)).eval()
        model.save_pretrained(folder)
        write_tokenizer(Path(folder), shape["vocab_size"])
        with LLM(folder, dtype=arguments.dtype, max_model_len=1024, max_num_seqs=32) as llm:
            compare(llm, model, scenarios(shape["vocab_size"]), arguments.rounds)


def compare(llm: LLM, model: torch.nn.Module, cases: dict[str, list[Request]], rounds: int) -> None:
    for name, requests in cases.items():
        ours: list[float] = []
        theirs: list[float] = []
        by_penstock(llm, requests[:1])
        for number in range(1, rounds + 1):
            ours.append(by_penstock(llm, requests))
            theirs.append(by_transformers(model, requests))
            print(f"  round {number}: penstock {ours[-1]:.2f}, transformers {theirs[-1]:.2f}", flush=True)
        ratio = median([a / b for a, b in zip(ours, theirs, strict=True)])
        print(f"{name}: penstock {median(ours):.2f}, transformers {median(theirs):.2f} output tokens/s: {ratio:.2f} x")


if __name__ == "__main__":
    main()
