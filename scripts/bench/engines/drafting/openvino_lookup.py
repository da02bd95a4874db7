"""OpenVINO GenAI's prompt lookup: `LLMPipeline(…, prompt_lookup=True)`, with the candidates of its own sample."""

from pathlib import Path
from typing import Any

from ..openvino import CACHE_GB, OpenVino
from ..serve import Request, Settings, serve

NUM_ASSISTANT_TOKENS = 5
MAX_NGRAM_SIZE = 3


class OpenVinoLookup(OpenVino):
    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        import openvino_genai as genai

        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.enable_prefix_caching = True
        self._pipeline = genai.LLMPipeline(
            str(folder), "CPU", prompt_lookup=True, scheduler_config=scheduler, INFERENCE_NUM_THREADS=settings.threads
        )
        return {"version": genai.__version__}

    def run(self, requests: list[Request]) -> list[list[int]]:
        import numpy
        import openvino
        import openvino_genai as genai

        [(ids, tokens)] = requests
        config = genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        config.num_assistant_tokens = NUM_ASSISTANT_TOKENS
        config.max_ngram_size = MAX_NGRAM_SIZE
        result = self._pipeline.generate(openvino.Tensor(numpy.array([ids], dtype=numpy.int64)), config)
        return [list(result.tokens[0])]


if __name__ == "__main__":
    serve(OpenVinoLookup())
