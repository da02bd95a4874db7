"""One kernel, launched a few times in the sizes of an 8B model: what a profiler is given.

ncu --kernel-name regex:^multiply$ --launch-skip 2 --launch-count 1 … python profiled.py multiply
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from gpu_figures.kernels import filled_memory, steps_rows, version
from gpu_figures.setting import Setting

_LAUNCHES = 4


def answers(setting: Setting) -> Callable[[], object]:
    """64 answers after 4,096 tokens each."""
    (queries, keys, length), (rows, context) = setting.sized(((32, 8, 128), (64, 4096)), ((4, 2, 32), (2, 64)))
    kv = filled_memory(rows * context, keys, length, "bf16", setting.device).of_layer(0)
    query = torch.randn(rows, queries, length, device=setting.device).bfloat16()
    step = steps_rows([context] * rows, 1, setting.device)
    return partial(version("attention_paged"), query, kv, step, length**-0.5, None)


def product(setting: Setting, operation: str, kind: str, group_size: int, rows: int) -> Callable[[], object]:
    """Of some rows with what makes gate and up."""
    from penstock.kernels import WeightFormat
    from penstock.kernels.torch.packed.gpu_weights import pack

    multiply = version(operation)
    outputs, inputs = setting.sized((24576, 4096), (80, 96))
    x, made = (torch.randn(count, inputs, device=setting.device).bfloat16() for count in (rows, outputs))
    weight = pack([made * 0.02], WeightFormat(kind, group_size), torch.device(setting.device))
    return partial(multiply, x, weight, None)


KERNELS: dict[str, Callable[[Setting], Callable[[], object]]] = {
    "attention_kernel": answers,
    "multiply_few_rows_int4": lambda setting: product(setting, "linear_wint4", "int4", 64, 16),
    "multiply": lambda setting: product(setting, "linear_int8", "int8", 0, setting.sized(4096, 70)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    launch = KERNELS[arguments.kernel](Setting(arguments.device, arguments.small, {}, Path()))
    for _ in range(_LAUNCHES):
        launch()
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    print(f"{arguments.kernel}: {_LAUNCHES} launches")


if __name__ == "__main__":
    main()
