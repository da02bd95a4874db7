"""`transformers.generate` as an engine of the benchmark: a padded batch, decoded until its longest answer is done."""

from pathlib import Path
from typing import Any

from .serve import Request, ServedEngine, Settings, serve


class Transformers(ServedEngine):
    def __init__(self) -> None:
        self._model: Any = None

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        """It reads the checkpoint as it is."""
        folder.symlink_to(checkpoint, target_is_directory=True)

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(settings.threads)
        dtype = torch.float32 if settings.quantization == "fp32" else torch.bfloat16
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        return {}

    def run(self, requests: list[Request]) -> list[list[int]]:
        import torch

        longest = max(len(ids) for ids, _ in requests)
        padded = torch.tensor([[0] * (longest - len(ids)) + ids for ids, _ in requests])
        mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids, _ in requests])
        most = max(count for _, count in requests)
        with torch.inference_mode():
            rows = self._model.generate(
                padded, attention_mask=mask, max_new_tokens=most, min_new_tokens=most, do_sample=False, pad_token_id=0
            )
        # Only those asked for count.
        return [row[longest : longest + count] for row, (_, count) in zip(rows.tolist(), requests, strict=True)]

    def close(self) -> None:
        self._model = None


if __name__ == "__main__":
    serve(Transformers())
