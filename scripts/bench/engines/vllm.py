"""vLLM's CPU build as an engine of the benchmark: its offline `LLM`, token ids in and out."""

import os
import sys
from pathlib import Path
from typing import Any

from .serve import Request, ServedEngine, Settings, serve

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",  # the wheel of its CPU build may call itself by the plain name
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}


# Where Debian and Fedora put it (libtcmalloc-minimal4, gperftools-libs).
TCMALLOC = ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "/usr/lib64/libtcmalloc_minimal.so.4")


def preloaded() -> list[str]:
    """The libraries that vLLM's documentation asks to load first on a CPU, as far as they are here."""
    intel_openmp = str(Path(sys.prefix) / "lib" / "libiomp5.so")  # it comes with vLLM's packages
    allocators = [path for path in TCMALLOC if Path(path).exists()][:1]
    return [*allocators, *([intel_openmp] if Path(intel_openmp).exists() else [])]


def with_libraries_preloaded(*words: str) -> None:
    """Start anew with them, as `python -m` and these words. Whoever set LD_PRELOAD has chosen."""
    if (libraries := preloaded()) and "LD_PRELOAD" not in os.environ:
        environment = {**os.environ, "LD_PRELOAD": ":".join(libraries)}
        os.execve(sys.executable, [sys.executable, "-m", *words], environment)


class Vllm(ServedEngine):
    def __init__(self) -> None:
        self._llm: Any = None

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        from ..formats.quantized_checkpoint import write_quantized

        if quantization == "none":
            folder.symlink_to(checkpoint, target_is_directory=True)
        else:
            write_quantized(checkpoint, folder, quantization)

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        cores = sorted(os.sched_getaffinity(0))[: settings.threads]
        os.environ.update(ENVIRONMENT, VLLM_CPU_OMP_THREADS_BIND=",".join(map(str, cores)))
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_gib)
        import vllm

        self._llm = vllm.LLM(
            model=str(folder),
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            enable_prefix_caching=True,
        )
        libraries = [Path(library).name for library in os.environ.get("LD_PRELOAD", "").split(":") if library]
        return {"version": vllm.__version__, "preloaded": libraries}

    def run(self, requests: list[Request]) -> list[list[int]]:
        from vllm import SamplingParams

        params = [
            SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False) for _, count in requests
        ]
        outputs = self._llm.generate([{"prompt_token_ids": ids} for ids, _ in requests], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def close(self) -> None:
        self._llm = None


if __name__ == "__main__":
    with_libraries_preloaded("bench.engines.vllm")
    serve(Vllm())
