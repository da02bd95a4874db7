"""Penstock as an engine of the benchmark of GGUF files: the file as it is, mapped or packed as it always is."""

from pathlib import Path
from typing import Any

from .llama_cpp import MODEL_FILE
from .penstock import BLOCK_SIZE, Penstock
from .serve import Settings, serve


class PenstockGguf(Penstock):
    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        from penstock import LLM

        self._llm = LLM(
            str((folder / MODEL_FILE).resolve()),
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            num_threads=settings.threads,
            kv_cache_memory="2GiB",
            block_size=BLOCK_SIZE,
            quiet=True,
        )
        plan = self._llm._session.transport.plan
        return {"weight_bytes": plan.weight_bytes, "kv_bytes_per_token": plan.block_bytes // BLOCK_SIZE}


if __name__ == "__main__":
    serve(PenstockGguf())
