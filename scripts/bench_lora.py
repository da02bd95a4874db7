"""What LoRA adapters cost: the same requests on the same tree with and without them, in turns.

    python scripts/bench_lora.py [--rounds 5] [--rank 16] [--adapters 8] [--quantization int8] [--shape small]

A random-weight Qwen3-0.6B shape in bfloat16 with adapters on all its projections. 16 requests decode 64 tokens each,
then 16 prompts of 256 tokens are computed; once without adapters, once spread over all of them, once all on one. Prints
tokens per second, and the time of each against that without: the median of the rounds' ratios.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from bench_harness import machine, median
from bench_models import SHAPES, write_config
from peers.checkpoint import tensor_shapes
from safetensors.torch import save_file

from penstock import LLM, SamplingParams

NUM_REQUESTS = 16
# Tokens in and out of each request.
SCENARIOS = {"decode (32 in, 64 out)": (32, 64), "prefill (256 in, 1 out)": (256, 1)}


def write_adapter(folder: Path, shape: dict[str, Any], rank: int, seed: int) -> Path:
    """As PEFT saves one that changes every projection."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    tensors, modules = {}, set()
    for weight, size in tensor_shapes(shape):
        name = weight.removesuffix(".weight")
        if name.endswith("_proj"):
            out_features, in_features = size
            down = torch.randn(rank, in_features, generator=generator)
            up = torch.randn(out_features, rank, generator=generator) / 100
            tensors[f"base_model.model.{name}.lora_A.weight"] = down.bfloat16()
            tensors[f"base_model.model.{name}.lora_B.weight"] = up.bfloat16()
            modules.add(name.rsplit(".", 1)[1])
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(modules), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def seconds(llm: LLM, tokens_in: int, tokens_out: int, names: list[str | None]) -> float:
    """Of 16 requests, which take the names in turns."""
    params = SamplingParams(temperature=0, max_tokens=tokens_out, ignore_eos=True)
    prompts = [
        {
            "prompt_token_ids": [(31 * row + place) % 4000 + 10 for place in range(tokens_in)],
            "lora_name": names[row % len(names)],
        }
        for row in range(NUM_REQUESTS)
    ]
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    taken = time.perf_counter() - start
    assert all(len(output.outputs.token_ids) == tokens_out for output in outputs), outputs[0].error_msg
    return taken


def report(llm: LLM, names: list[str], rounds: int) -> None:
    kinds: dict[str, list[str | None]] = {"none": [None], f"{len(names)} adapters": [*names], "one": [names[0]]}
    for scenario, (tokens_in, tokens_out) in SCENARIOS.items():
        found: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(rounds + 1):
            for kind, chosen in kinds.items():
                taken = seconds(llm, tokens_in, tokens_out, chosen)
                if number:  # the first round warms up
                    found[kind].append(taken)
        for kind, times in found.items():
            ratio = median([own / none for own, none in zip(times, found["none"], strict=True)])
            speed = NUM_REQUESTS * (tokens_out if tokens_out > 1 else tokens_in) / median(times)
            print(f"{scenario}, {kind}: {speed:,.0f} tokens/s, {ratio:.3f} x the time without")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--quantization", choices=("int8", "int4"))
    parser.add_argument("--shape", choices=tuple(SHAPES), default="0.6b")
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    shape = {**SHAPES[arguments.shape], "dtype": "bfloat16"}
    names = [f"adapter {number}" for number in range(arguments.adapters)]
    room = {"enable_lora": True, "max_loras": arguments.adapters, "max_lora_rank": arguments.rank}
    options = {"load_format": "dummy", "max_model_len": 512, "enable_prefix_caching": False, "quiet": True}
    with TemporaryDirectory() as folder:
        base = Path(folder)
        write_config(base, shape)
        with LLM(base, quantization=arguments.quantization, **room, **options) as llm:
            for number, name in enumerate(names):
                llm.load_lora(name, write_adapter(base / name, shape, arguments.rank, number))
            report(llm, names, arguments.rounds)


if __name__ == "__main__":
    main()
