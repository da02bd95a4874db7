"""Has llama.cpp itself quantize a GGUF file of floats, to any of its mixtures: what Penstock reads is then its work.

    python -m bench.formats.quantize_gguf model-f32.gguf Q4_K_M IQ4_XS …     # writes model-f32-Q4_K_M.gguf and so on

It runs in the Python in which llama-cpp-python is installed. The file of floats comes from `penstock convert MODEL
OUT.gguf --quantization none`. Without a kind it writes all that need no importance matrix. F32 widens any file;
UD is Q4_K_M with a type of its own for each part and some layers, as files have them that were quantized by what each
tensor can bear.
"""

import argparse
import ctypes
import os
import sys
from pathlib import Path

# Every mixture that llama.cpp makes without an importance matrix, by its own name.
WITHOUT_MATRIX = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L"),
    *("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"),
)

UD = "UD"
# The first pattern that a tensor's name has gives its type.
UD_TYPES = (
    (r"blk\.[02468]\.ffn_down", "Q6_K"), (r"blk\.[13579]\.ffn_down", "IQ4_XS"), (r"ffn_down", "Q5_K"),
    (r"blk\.[0-5]\.ffn_up", "Q5_1"), (r"ffn_up", "IQ4_NL"), (r"blk\.[0-3]\.ffn_gate", "Q4_1"),
    (r"attn_q\.", "IQ4_XS"), (r"attn_k\.", "Q5_0"), (r"attn_v\.", "Q8_0"), (r"blk\.[048]\.attn_output", "F16"),
    (r"attn_output", "Q3_K"), (r"token_embd", "Q6_K"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="a GGUF file of floats")
    every = [*WITHOUT_MATRIX, UD]
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=every, help="Q4_K_M, IQ4_XS, …; or all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        target = arguments.file.with_name(f"{arguments.file.stem}-{kind}.gguf")
        quantize(arguments.file, target, kind, arguments.threads)
        print(f"{target}: {target.stat().st_size:,} bytes", flush=True)


def quantize(source: Path, target: Path, kind: str, threads: int = len(os.sched_getaffinity(0))) -> None:
    """Write `target`; every matrix becomes what llama.cpp chooses for this mixture."""
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = file_type("Q4_K_M" if kind == UD else kind)
    if kind == UD:
        ends = [(None, llama_cpp.GGML_TYPE_COUNT)]
        rows = [(pattern.encode(), getattr(llama_cpp, f"GGML_TYPE_{name}")) for pattern, name in UD_TYPES]
        options.tt_overrides = (llama_cpp.llama_model_tensor_override * (len(rows) + 1))(*rows, *ends)
    options.nthread = threads
    options.allow_requantize = kind == "F32"  # which widens, and loses nothing
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options)):
        target.unlink(missing_ok=True)
        raise RuntimeError(f"llama.cpp could not make {kind} of {source}")


def file_type(kind: str) -> int:
    """llama.cpp's number of it."""
    import llama_cpp

    names = (f"LLAMA_FTYPE_MOSTLY_{kind}", f"LLAMA_FTYPE_ALL_{kind}")
    if (found := next((getattr(llama_cpp, name) for name in names if hasattr(llama_cpp, name)), None)) is None:
        sys.exit(f"llama.cpp has no mixture {kind}; it has, among others, {', '.join(WITHOUT_MATRIX)}.")
    return int(found)


if __name__ == "__main__":
    main()
