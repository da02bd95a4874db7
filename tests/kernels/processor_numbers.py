"""Prints what the kernels of a processor compute: products with every kind of weight, and answers of pocket.

    python tests/kernels/processor_numbers.py VARIANT

It needs no torch and starts no process, so an emulated processor's Python runs it (test_cpu_emulated_arm.py).
"""

import hashlib
import sys
from collections.abc import Iterator
from ctypes import addressof, c_int32
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy

from penstock import SamplingParams
from penstock.engine.admission.limits import Limits
from penstock.engine.scheduler import Scheduler
from penstock.frontend.models.model_files import find_model
from penstock.frontend.requests.door import Door
from penstock.frontend.text.detokenizer import Detokenizer
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.kernels.arrays import FLOAT32, Array, address
from penstock.kernels.cpu import library as native
from penstock.kernels.cpu.layer import QuantizedRows, linear_arguments
from penstock.kernels.cpu.structs import Quantize
from penstock.kernels.cpu.weights.blocks import pack_blocks
from penstock.kernels.cpu.weights.packed import NativeWeight, pack
from penstock.kernels.stored.block_kinds import KINDS_OF_TYPES
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.protocol.messages import Allocate
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.trace import Trace
from penstock.worker.start.start import Start

ROWS, INPUTS, OUTPUTS = 9, 512, 70
FORMATS = (
    {"dtype": "fp32"},
    {"dtype": "bf16", "kv_cache_dtype": "int8", "quantization": "int8"},
    {"dtype": "fp16", "kv_cache_dtype": "uint4", "quantization": "int4"},
)
PARAMS = SamplingParams(temperature=0.9, top_p=0.95, seed=3, max_tokens=12, ignore_eos=True, logprobs=3)


def weights(generator: numpy.random.Generator) -> Iterator[tuple[str, NativeWeight]]:
    matrix = numbers(generator, OUTPUTS, INPUTS)
    for kind in ("fp32", "fp16", "bf16", "int8", "int4"):
        yield kind, pack([matrix], kind)
    for type in KINDS_OF_TYPES:
        octets = generator.integers(0, 256, (OUTPUTS, INPUTS // TYPES[type].block * TYPES[type].nbytes), numpy.uint8)
        yield type, pack_blocks([GgmlPart(type, octets & 0xBF)])  # no float16 in a block is infinite


def numbers(generator: numpy.random.Generator, *shape: int) -> Array:
    return (generator.integers(-2000, 2000, shape) / 512).astype(FLOAT32)


def product(x: Array, weight: NativeWeight) -> Array:
    library, count, output = native.load(), c_int32(len(x)), numpy.zeros((len(x), weight.out_features), FLOAT32)
    rows = QuantizedRows.empty(*x.shape, weight.row_group)
    library.call("penstock_quantize", Quantize(addressof(count), address(x), x.shape[1], rows.structure()))
    arguments = linear_arguments(addressof(count), x, rows.structure(), weight, None, output)
    library.call(f"penstock_linear_{weight.family}", arguments)
    return output


def answer(directory: Path, **options: str) -> str:
    """Text, ids and log-probabilities to the last bit, by the walk of docs/architecture.md."""
    config = EngineConfig.from_options("pocket", max_model_len=256, num_gpu_blocks_override=32, **options)
    files = find_model(config.model)
    tokenizer = Tokenizer(files.tokenizer_folder, files.folder)
    launch = Launch(config, str(files.folder), str(files.tokenizer_folder), threads_per_rank=1)
    start = Start(launch, rank=0, directory=directory)
    plan = start.plan()
    runner = start.runner(Allocate([config.num_gpu_blocks_override], plan.max_model_len, [0]), Trace(None, "worker 0"))
    door = Door(config, tokenizer, plan, defaults=SamplingParams())
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of Peru?"}])
    [pending] = door.admit(list(door.parse([prompt], PARAMS)), notify=lambda _: None)
    scheduler, detokenizer = Scheduler(Limits.settled(config, plan)), Detokenizer(tokenizer.decoding)
    scheduler.add(pending.prompt)
    while (step := scheduler.plan()) is not None:
        deltas, _ = detokenizer.feed(scheduler.finish(runner.step(step, await_mask=lambda _: None)))
        for delta in deltas:
            pending.add(delta)
    start.close()
    output = pending.take().outputs
    likeliest = [[(token, each.logprob.hex()) for token, each in of.items()] for of in output.logprobs]
    return f"{output.text!r} {list(output.token_ids)} {likeliest}"


def main(variant: str) -> None:
    # An emulated processor has the real one's /proc/cpuinfo.
    native.executable_variants = lambda: [variant]
    generator = numpy.random.default_rng(1)
    x = numbers(generator, ROWS, INPUTS)
    for name, weight in weights(generator):
        print(name, hashlib.sha256(product(x, weight).tobytes()).hexdigest())
    for options in FORMATS:
        with TemporaryDirectory() as directory:
            print(*options.values(), answer(Path(directory), **options))
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main(sys.argv[1])
