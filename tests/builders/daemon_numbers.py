"""A daemon with small random models that give numbers, and what several files ask it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from .daemon import RunningDaemon, models, running_daemon
from .pooled_models import embedding_model, encoder

TEXTS = ["a hen in the rain", "three hares", "the oldest oak there is"]
WORDS = {"query": "to find: ", "document": "", "long": "words that stand before a text "}
LONG = "a hen " * 400
QUESTIONS: list[Any] = [
    {"type": "predicate", "instructions": "The sum is four.", "name": "sum"},
    {"type": "choice", "instructions": "Which one?", "choices": [{"value": "a"}, {"value": True, "description": "b"}]},
    {"type": "score", "instructions": [{"type": "input_text", "text": "How large is it?"}],
     "levels": [{"label": "small"}, {"label": "large"}]},
    *({"type": "predicate", "instructions": f"It is {number}."} for number in range(100)),
]  # fmt: skip


@contextmanager
def daemon_of_numbers(folder: Path) -> Iterator[RunningDaemon]:
    vectors = embedding_model(folder / "vectors", pooling_mode_lasttoken=True)
    (vectors / "config_sentence_transformers.json").write_text(json.dumps({"prompts": WORDS}))
    encoder(folder / "ranks", "Bert", "ForSequenceClassification", num_labels=1, vocab_size=300)
    encoder(folder / "kinds", "ModernBert", "ForSequenceClassification", num_labels=3, vocab_size=300)
    config = folder / "penstock.toml"
    tables = "".join(
        f"[models.{name}]\nmodel = {json.dumps(str(folder / name))}\nmax_model_len = 256\nnum_threads = 1\n"
        f"max_num_seqs = 16\n" for name in ("vectors", "ranks", "kinds")
    )  # fmt: skip
    config.write_text(models("pocket") + tables)
    with running_daemon(folder, "--config", str(config), "--http", "127.0.0.1:0", "--max-texts", "64") as running:
        yield running


def said(reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    return reply.json()
