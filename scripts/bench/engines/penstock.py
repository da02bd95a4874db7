"""Penstock as an engine of the benchmark: an `LLM` with a tree of its own."""

import sys
from pathlib import Path
from typing import Any

from .serve import Request, ServedEngine, Settings, serve

BLOCK_SIZE = 32
PRECISIONS = {
    "fp32": {"dtype": "float32"},
    "none": {"dtype": "bfloat16"},
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
    # Experts stay as they are published; these are of the other projections.
    "mxfp4": {"quantization": "int8"},
    "mxfp4_int4": {"quantization": "int4"},
}


class Penstock(ServedEngine):
    def __init__(self, file: str | None = None) -> None:
        """`file` is read from each model's folder, in place of the folder itself."""
        self._file = file
        self._llm: Any = None

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        """It reads the checkpoint as it is; where there are no weights in it, it makes some up."""
        folder.symlink_to(checkpoint, target_is_directory=True)

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        from penstock import LLM

        is_dummy = not self._file and not any(folder.glob("*.safetensors"))
        self._llm = LLM(
            str((folder / self._file).resolve() if self._file else folder),
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            num_threads=settings.threads,
            kv_cache_memory=f"{settings.kv_gib}GiB",
            block_size=BLOCK_SIZE,
            quiet=True,
            load_format="dummy" if is_dummy else "auto",
            # Random weights repeat themselves as no model does: drafts would give several tokens a step.
            speculative_config=False,
            **({} if self._file else PRECISIONS[settings.quantization]),
        )
        plan = self._llm._session.transport.plan
        return {
            "weight_bytes": plan.weight_bytes,
            "kv_bytes_per_token": plan.block_bytes // BLOCK_SIZE,
            "kv_bytes": plan.kv_bytes,
        }

    def run(self, requests: list[Request]) -> list[list[int]]:
        from penstock import SamplingParams

        params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for _, count in requests]
        outputs = self._llm.generate([ids for ids, _ in requests], params, use_tqdm=False)
        return [list(output.outputs.token_ids) for output in outputs]

    def close(self) -> None:
        if self._llm is not None:
            self._llm.close()


if __name__ == "__main__":
    serve(Penstock(*sys.argv[1:]))
