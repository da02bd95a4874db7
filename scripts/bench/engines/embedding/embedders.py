"""Engines that embed, for `scripts/benchmark embeddings`: python -m bench.engines.embedding.embedders ENGINE.

All get the same token ids at once. An engine that pads sorts them by length and takes some at a time, as
sentence-transformers does. OpenVINO's pipeline takes text only, and gets the letters that the ids stand for.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..serve import Request, ServedEngine, Settings, serve
from ..vllm import ENVIRONMENT, with_libraries_preloaded

Vectors = list[list[float]]
Embed = Callable[[list[list[int]]], Any]
BATCH = 32  # texts that are padded to one length


def penstock(folder: Path, pooling: str, settings: Settings) -> Embed:
    from penstock import LLM

    precision = {"dtype": "bfloat16"} if settings.quantization == "none" else {"quantization": settings.quantization}
    llm = LLM(
        str(folder), max_model_len=settings.max_model_len, max_num_seqs=settings.max_num_seqs,
        num_threads=settings.threads, kv_cache_memory=f"{settings.kv_gib}GiB", enable_prefix_caching=False,
        quiet=True, **precision,
    )  # fmt: skip
    return lambda texts: llm.embed(texts, use_tqdm=False, as_numpy=True)


def vllm(folder: Path, pooling: str, settings: Settings) -> Embed:
    cores = sorted(os.sched_getaffinity(0))[: settings.threads]
    os.environ.update(ENVIRONMENT, VLLM_CPU_OMP_THREADS_BIND=",".join(map(str, cores)))
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_gib)
    import vllm

    llm = vllm.LLM(
        model=str(folder), runner="pooling", dtype="bfloat16", max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs, enable_prefix_caching=False,
    )  # fmt: skip

    def embed(texts: list[list[int]]) -> Vectors:
        outputs = llm.embed([{"prompt_token_ids": ids} for ids in texts], use_tqdm=False)
        return [output.outputs.embedding for output in outputs]

    return embed


def transformers(folder: Path, pooling: str, settings: Settings) -> Embed:
    import torch
    from transformers import AutoModel

    torch.set_num_threads(settings.threads)
    model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def pooled(texts: list[list[int]]) -> Any:
        longest = max(map(len, texts))
        ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
        lengths = torch.tensor([len(text) for text in texts])
        mask = (torch.arange(longest) < lengths[:, None]).long()
        rows = model(input_ids=ids, attention_mask=mask).last_hidden_state
        if pooling == "mean":
            found = (rows * mask[..., None]).sum(1) / lengths[:, None]
        else:
            found = rows[torch.arange(len(texts)), lengths - 1 if pooling == "lasttoken" else lengths * 0]
        return torch.nn.functional.normalize(found.float())

    def embed(texts: list[list[int]]) -> Vectors:
        with torch.inference_mode():
            return by_length(texts, lambda some: pooled(some).tolist())

    return embed


def openvino(folder: Path, pooling: str, settings: Settings) -> Embed:
    import openvino_genai as genai
    from tokenizers import Tokenizer

    kinds = genai.TextEmbeddingPipeline.PoolingType
    config = genai.TextEmbeddingPipeline.Config()
    config.pooling_type = {"cls": kinds.CLS, "mean": kinds.MEAN, "lasttoken": kinds.LAST_TOKEN}[pooling]
    config.normalize = True
    pipeline = genai.TextEmbeddingPipeline(str(folder), "CPU", config, INFERENCE_NUM_THREADS=settings.threads)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda texts: by_length(
        texts, lambda some: pipeline.embed_documents(tokenizer.decode_batch(some, skip_special_tokens=False))
    )


def by_length(texts: list[list[int]], embed: Callable[[list[list[int]]], Vectors]) -> Vectors:
    """Embed texts of similar lengths together; the vectors come in the texts' order."""
    order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
    found: dict[int, list[float]] = {}
    for start in range(0, len(texts), BATCH):
        some = order[start : start + BATCH]
        found.update(zip(some, embed([texts[number] for number in some]), strict=True))
    return [found[number] for number in range(len(texts))]


LOADERS = {each.__name__: each for each in (penstock, vllm, transformers, openvino)}


class Embedder(ServedEngine):
    def __init__(self, name: str, pooling: str) -> None:
        self._load, self._pooling = LOADERS[name], pooling
        self._embed: Embed

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        raise NotImplementedError("The benchmark makes each engine's format before it starts the engine.")

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        self._embed = self._load(folder, self._pooling, settings)
        return {}

    def run(self, requests: list[Request]) -> list[list[Any]]:
        return [[float(number) for number in vector] for vector in self._embed([ids for ids, _ in requests])]

    def close(self) -> None:
        del self._embed


if __name__ == "__main__":
    if sys.argv[1] == vllm.__name__:
        with_libraries_preloaded("bench.engines.embedding.embedders", *sys.argv[1:])
    serve(Embedder(*sys.argv[1:]))
