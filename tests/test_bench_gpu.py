"""The GPU's benchmark: the least work that it holds times against, how it reads a profile, and what a failure costs."""

import json

import bench_gpu
from bench_models import SHAPES
from gpu_figures.setting import Figure, Part, Setting
from gpu_figures.work import Work, attention_operations

SMALL = Work(hidden=8, inner=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, vocabulary=10)


def test_the_shapes_have_the_weights_that_their_names_say():
    eight, little = (Work.of(SHAPES[name]) for name in ("8b", "0.6b"))
    assert 7.5e9 < eight.layer_weights + eight.head_weights < 8.2e9
    assert 0.55e9 < little.layer_weights + little.head_weights < 0.6e9
    assert eight.kv_bytes() == 2 * 36 * 8 * 128 * 2


def test_answers_read_their_contexts_once_a_token_and_the_weights_once_a_step():
    # Contexts of 4, 5 and 6 tokens, then of 3; the longer answer has three steps.
    expected = (4 + 5 + 6 + 3) * SMALL.kv_bytes() + 3 * SMALL.weight_bytes("bf16")
    assert SMALL.answering_bytes([(3, 3), (2, 1)]) == expected


def test_a_prompt_s_tokens_see_those_before_them():
    assert attention_operations(4, 4, 3) == 4 * 4 * 4 * (1 + 2 + 3)
    products = 2 * SMALL.layer_weights * 3 + 2 * SMALL.head_weights
    assert SMALL.prompt_operations([3]) == products + 2 * attention_operations(4, 4, 3)


def test_a_part_that_fails_says_why_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def broken():
        yield Figure("half", 1.0, "x")
        raise RuntimeError("\nthe card is gone\nand more")

    parts = [Part("broken", broken), Part("whole", lambda: iter([Figure("whole", 2.0, "x", 0.5, "all")]))]
    monkeypatch.setattr(bench_gpu, "parts_of", lambda section, setting: iter(parts))
    bench_gpu.run_section("limits", Setting("cpu", True, {}, tmp_path))
    table = bench_gpu.Table(is_markdown=False)
    for line in capsys.readouterr().out.splitlines():
        table.take(json.loads(line.removeprefix(bench_gpu._MARK)))
    assert table.known == {"half": 1.0, "whole": 2.0}
    assert table.failures == {"broken": "RuntimeError: the card is gone"}
    assert "50.0% of all" in capsys.readouterr().out
