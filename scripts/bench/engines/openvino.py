"""OpenVINO GenAI as an engine of the benchmark: its continuous-batching pipeline, token ids in and out.

Its format is made by optimum-intel's own exporter in the same Python, with the exporter's defaults for each precision.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from .serve import Request, ServedEngine, Settings, serve

EXPORT = {
    "fp32": ["--weight-format", "fp32"],
    "none": ["--weight-format", "fp16"],
    "int8": ["--weight-format", "int8"],
    "int4": ["--weight-format", "int4", "--group-size", "128", "--ratio", "1.0", "--group-size-fallback", "ignore"],
}
CACHE_GB = 2


class OpenVino(ServedEngine):
    def __init__(self) -> None:
        self._pipeline: Any = None

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        exporter = Path(sys.executable).with_name("optimum-cli")
        if not exporter.exists():
            raise FileNotFoundError(f"{exporter} makes OpenVINO's format and is missing: pip install optimum-intel")
        words = ["export", "openvino", "--model", str(checkpoint), "--task", "text-generation-with-past"]
        subprocess.run([str(exporter), *words, *EXPORT[quantization], str(folder)], check=True)

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        import openvino_genai as genai

        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.max_num_seqs = settings.max_num_seqs
        scheduler.enable_prefix_caching = True
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": settings.threads}
        if settings.quantization == "fp32":
            properties["INFERENCE_PRECISION_HINT"] = "f32"  # else a processor with bf16 computes in that
        self._pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
        return {"version": genai.__version__}

    def run(self, requests: list[Request]) -> list[list[int]]:
        import numpy
        import openvino
        import openvino_genai as genai

        prompts = [openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids, _ in requests]
        configs = []
        for _, count in requests:
            config = genai.GenerationConfig()
            config.max_new_tokens = count
            config.ignore_eos = True
            config.do_sample = False
            configs.append(config)
        results = self._pipeline.generate(prompts, configs)
        return [list(result.m_generation_ids[0]) for result in results]

    def close(self) -> None:
        self._pipeline = None


if __name__ == "__main__":
    serve(OpenVino())
