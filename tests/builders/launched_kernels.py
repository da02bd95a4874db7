"""Compile what kernels are launched with, on a card that is not there (`absent_card.py`), and say what programs take.

    python launched_kernels.py TARGET FAMILY EVERY   every EVERYth signature that a family of operations launches
    python launched_kernels.py TARGET dependent      what dependent launches do to memory before they wait
    python launched_kernels.py TARGET quick          of each operation's first example every kernel as far as types and
                                                     shapes are checked, and the largest ones to machine code

Families are those of `real_sizes.py`, whose tensors lie nowhere; "small", the examples of all operations, in which each
number format and each form is met; "adapters"; and "heads_attending", attention with heads of any length over blocks of
any size. For a process of its own.
"""

import json
import re
import sys
from collections.abc import Iterator
from itertools import cycle, islice, product

import torch
from builders.absent_card import Card, Launched
from builders.operation_examples.attention import QUERY_DTYPES
from builders.operation_examples.table import EXAMPLES
from builders.real_sizes import FAMILIES, Case, Sizes
from triton.backends.nvidia.compiler import CUDABackend

from penstock.kernels import LoraConfig
from penstock.kernels.arrays import BFLOAT16, FLOAT32
from penstock.kernels.paged import KV_DTYPES, DeviceRows, PagedKV
from penstock.kernels.reference.paged_attention import attention_paged, attention_paged_invariant
from penstock.kernels.registry import OPS
from penstock.kernels.torch.arrays import torch_dtype

NOWHERE = torch.device("meta")
# The kernels that take most registers or shared memory, or whose programs are joined: family, and what it is called.
LARGEST = (("attention", "bf16, 1 of"), ("few_rows", "int4, 64"))


def launch(family: str) -> None:
    if family == "small":
        launch_examples(1000)
    elif family == "adapters":
        launch_adapters()
    elif family == "heads_attending":
        launch_attention()
    else:
        for case in FAMILIES[family](Sizes("meta", is_small=False)):
            launch_case(case)


def launch_case(case: Case) -> None:
    [op] = (op for name, op in OPS.items() if name.rpartition(".")[2] == case.operation)
    op.versions["triton"](*case.arguments)


def launch_examples(most: int) -> None:
    for name, op in OPS.items():
        if "triton" in op.versions:
            for arguments in islice(EXAMPLES[name](0), most):
                op.versions["triton"](*arguments)


def launch_adapters() -> None:
    """Up to the largest rank, of the product of gate and up of an 8B model."""
    from penstock.kernels.triton.products.lora import DeviceLoraMapping, TritonLora, add_lora

    for dtype, of_torch, ranks in ((BFLOAT16, torch.bfloat16, (16, 256)), (FLOAT32, torch.float32, (64, 256))):
        for rank in ranks:
            lora = TritonLora(4096, [12288, 12288], LoraConfig(dtype, 2, rank), NOWHERE)
            product, x = (torch.empty(64, width, dtype=of_torch, device=NOWHERE) for width in (24576, 4096))
            add_lora(product, x, lora, DeviceLoraMapping.room(64, 2, NOWHERE))


def launch_attention() -> None:
    """Answers, drafts, prompts and pictures; block sizes and heads that share one take turns."""
    turns = cycle(product((16, 32, 48, 64), (2, 1, 8)))
    for head_dim, kind in product((32, 64, 80, 96, 128, 192, 256), KV_DTYPES):
        block_size, shared = next(turns)
        numbers = torch.empty(400, block_size, 4, head_dim, dtype=torch_dtype(KV_DTYPES[kind]), device=NOWHERE)
        scales = (numbers.new_empty(numbers.shape[:3], dtype=torch.float16),) * 2 if kind == "int8" else ()
        for queries, has_pictures in ((1, False), (5, False), (300, False), (300, True)):
            columns = (torch.empty(count, dtype=torch.int32, device=NOWHERE) for count in (5, 4))
            slots = torch.empty(4 * queries, dtype=torch.int64, device=NOWHERE)
            tables, ends = numbers.new_empty(4, 100, dtype=torch.int32), slots if has_pictures else None
            rows = DeviceRows(*columns, tables, slots, queries, 100 * block_size, seen_ends=ends)
            dtype = QUERY_DTYPES.get(kind, torch.bfloat16)
            query = torch.empty(4 * queries, 4 * shared, head_dim, dtype=dtype, device=NOWHERE)
            sinks = torch.empty(4 * shared, device=NOWHERE) if has_pictures else None
            for op in (attention_paged, attention_paged_invariant):
                op.versions["triton"](query, PagedKV(numbers, numbers, *scales), rows, 1.0, None, sinks)


class Checked(Exception):
    """Types and shapes are right, as far as they are looked at before machine code."""


def checked(launched: Launched) -> None:
    def stop(*_: object) -> None:
        raise Checked

    lower, CUDABackend.make_ttgir = vars(CUDABackend)["make_ttgir"], stop
    try:
        launched.code()
    except Checked:
        pass
    finally:
        CUDABackend.make_ttgir = lower


def quick(card: Card) -> Iterator[tuple[str, list[int] | None]]:
    launch_examples(1)
    launch_adapters()
    for launched in {launched.kernel: launched for launched in card.launched.values()}.values():
        checked(launched)
        yield launched.kernel.__name__, None
    for family, what in LARGEST:
        before = set(card.launched)
        launch_case(
            next(case for case in FAMILIES[family](Sizes("meta", is_small=False)) if case.what.startswith(what))
        )
        for name in card.launched.keys() - before:
            yield name, [*card.launched[name].taken()]


def dependent(card: Card) -> Iterator[tuple[str, list[str]]]:
    for family in ("few_rows", "heads", "attention"):
        card.forget()
        launch_case(next(iter(FAMILIES[family](Sizes("meta", is_small=False)))))
        for name, launched in card.launched.items():
            before, waits, _ = launched.code().asm["ptx"].partition("griddepcontrol.wait")
            yield name, re.findall(r"(?:ld|st|atom|red|prefetch)\.global|cp\.async", before) if waits else ["no wait"]


def main(target: int, family: str, every: int = 1) -> None:
    card = Card(target)
    card.plug_in()
    if family in ("quick", "dependent"):
        found = (quick if family == "quick" else dependent)(card)
    else:
        launch(family)
        found = ((name, [*each.taken()]) for name, each in islice(card.launched.items(), 0, None, every))
    for each in found:
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
