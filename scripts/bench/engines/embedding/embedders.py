"""Engines that embed, for `scripts/benchmark embeddings`: python -m bench.engines.embedding.embedders ENGINE.

All get the same token ids at once. An engine that pads sorts them by length and takes some at a time, as
sentence-transformers does. OpenVINO's pipeline takes text only, and gets the letters that the ids stand for. ONNX
Runtime is what fastembed calls, too, with padding of its own; llama.cpp packs texts into steps, without padding.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy

from ..serve import Request, ServedEngine, Settings, serve
from ..vllm import ENVIRONMENT, with_libraries_preloaded

Vectors = list[list[float]]
Embed = Callable[[list[list[int]]], Any]
BATCH = 32  # texts that are padded to one length
PACKED = 512  # tokens of llama.cpp's steps, whose attention compares all with all
ONNX_FILE, GGUF_FILE = "model.onnx", "model.gguf"


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


def onnxruntime(folder: Path, pooling: str, settings: Settings) -> Embed:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    session = onnxruntime.InferenceSession(folder / ONNX_FILE, options, providers=["CPUExecutionProvider"])

    def pooled(texts: list[list[int]]) -> Vectors:
        lengths = numpy.array([len(text) for text in texts])
        mask = (numpy.arange(max(lengths)) < lengths[:, None]).astype(numpy.int64)
        ids = numpy.zeros_like(mask)
        for own, text in zip(ids, texts, strict=True):
            own[: len(text)] = text
        (rows,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
        if pooling == "mean":
            found = (rows * mask[..., None]).sum(1) / lengths[:, None]
        else:
            found = rows[numpy.arange(len(texts)), lengths - 1 if pooling == "lasttoken" else lengths * 0]
        return normalized(found)

    return lambda texts: by_length(texts, pooled)


def llama_cpp(folder: Path, pooling: str, settings: Settings) -> Embed:
    import llama_cpp

    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        str(folder / GGUF_FILE).encode(), llama_cpp.llama_model_default_params()
    )
    options = llama_cpp.llama_context_default_params()
    options.embeddings, options.n_threads, options.n_threads_batch = True, settings.threads, settings.threads
    options.pooling_type = {"mean": 1, "cls": 2, "lasttoken": 3}[pooling]
    options.n_ctx = options.n_batch = options.n_ubatch = PACKED
    options.n_seq_max, options.kv_unified = PACKED // 16, True
    context = llama_cpp.llama_init_from_model(model, options)
    if not context:
        raise RuntimeError(f"llama.cpp could not load {folder / GGUF_FILE}")
    compute = llama_cpp.llama_decode if pooling == "lasttoken" else llama_cpp.llama_encode
    width, batch = llama_cpp.llama_model_n_embd(model), llama_cpp.llama_batch_init(PACKED, 0, 1)

    def packed(texts: list[list[int]]) -> Vectors:
        entries = [(token, place, row) for row, text in enumerate(texts) for place, token in enumerate(text)]
        batch.n_tokens = len(entries)
        for number, (token, place, row) in enumerate(entries):
            batch.token[number], batch.pos[number], batch.seq_id[number][0] = token, place, row
            batch.n_seq_id[number], batch.logits[number] = 1, True
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        if status := compute(context, batch):
            raise RuntimeError(f"llama.cpp failed with status {status} at {len(entries)} tokens")
        rows = [llama_cpp.llama_get_embeddings_seq(context, row) for row in range(len(texts))]
        return normalized(numpy.stack([numpy.ctypeslib.as_array(row, (width,)) for row in rows]))

    return lambda texts: [vector for some in in_steps(texts) for vector in packed(some)]


def in_steps(texts: list[list[int]]) -> Iterator[list[list[int]]]:
    """As many texts together as a step of `PACKED` tokens takes, in their order."""
    some: list[list[int]] = []
    for text in texts:
        if some and sum(map(len, some)) + len(text) > PACKED:
            yield some
            some = []
        some.append(text)
    yield some


def normalized(rows: numpy.ndarray) -> Vectors:
    found: Vectors = (rows / numpy.linalg.norm(rows, axis=-1, keepdims=True)).tolist()
    return found


def by_length(texts: list[list[int]], embed: Callable[[list[list[int]]], Vectors]) -> Vectors:
    """Embed texts of similar lengths together; the vectors come in the texts' order."""
    order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
    found: dict[int, list[float]] = {}
    for start in range(0, len(texts), BATCH):
        some = order[start : start + BATCH]
        found.update(zip(some, embed([texts[number] for number in some]), strict=True))
    return [found[number] for number in range(len(texts))]


LOADERS = {each.__name__: each for each in (penstock, vllm, transformers, openvino, onnxruntime, llama_cpp)}


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
