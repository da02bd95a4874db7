"""`bench_gguf.py` and `measure_gguf.py`: what a token reads of a file, and how files are compared."""

from pathlib import Path

import pytest
import torch
from bench_gguf import bytes_read_a_token
from builders.cases import for_each
from builders.gguf_file import write_gguf, zeros
from measure_gguf import Compared, centred, perplexity
from peers.quantize_gguf import WITHOUT_MATRIX

TABLE, LAYER = zeros((512, 256), "Q6_K"), zeros((256, 256), "Q4_K")
EXPERTS = zeros((8, 32, 256), "Q8_0")


def nbytes(tensor) -> int:
    return len(tensor.content)


@for_each(
    "further, read",
    [
        ({}, nbytes(TABLE) + nbytes(LAYER)),
        ({"output.weight": TABLE}, nbytes(TABLE) + nbytes(LAYER)),
        ({"blk.0.ffn_up_exps.weight": EXPERTS}, nbytes(TABLE) + nbytes(LAYER) + nbytes(EXPERTS) / 4),
    ],
)
def test_a_token_reads_all_weights_but_a_table_and_of_experts_those_in_use(tmp_path: Path, further, read):
    metadata = {"general.architecture": "qwen3moe", "qwen3moe.expert_count": 8, "qwen3moe.expert_used_count": 2}
    tensors = {"token_embd.weight": TABLE, "blk.0.attn_q.weight": LAYER, **further}
    assert bytes_read_a_token(write_gguf(tmp_path / "model.gguf", metadata, tensors)) == read


def test_a_row_of_the_comparison_has_both_perplexities_and_their_distance():
    row = Compared(1e-4, (0.25, 0.5), 0.3, (8.0, 8.04), 0.5, 1.0).row(Path("here/tiny.gguf"))
    assert row == ("| tiny.gguf | 1.0e-04 | 2.5e-01 | 5.0e-01 | 3.0e-01 | 8.000 | 8.040 | +0.50% | 50.0% | 100.0% |")


def test_perplexity_is_that_of_the_next_tokens_of_all_texts_and_a_constant_changes_nothing():
    logits, tokens = torch.zeros(8, 8), torch.arange(5)
    assert perplexity(logits, [tokens, tokens[:3]]) == pytest.approx(8.0)
    assert torch.allclose(centred(logits + 3), centred(logits))


def test_no_mixture_is_named_twice():
    assert len(set(WITHOUT_MATRIX)) == len(WITHOUT_MATRIX)
