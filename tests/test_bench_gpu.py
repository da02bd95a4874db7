"""The GPU's benchmark: the least work that it holds times against, how it reads a profile, and what a failure costs."""

import json
import subprocess
from contextlib import contextmanager

import bench_gpu
import bisect_gpu
import pytest
from bench_models import SHAPES
from builders.cases import for_each
from gpu_figures import trees
from gpu_figures.idle import busy_seconds
from gpu_figures.setting import Figure, Part, Setting
from gpu_figures.work import Work, attention_operations

SMALL = Work(hidden=8, inner=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, vocabulary=10)


def test_the_shapes_have_the_weights_that_their_names_say():
    eight, little = (Work.of(SHAPES[name]) for name in ("8b", "0.6b"))
    assert 7.5e9 < eight.layer_weights + eight.head_weights < 8.2e9
    assert 0.55e9 < little.layer_weights + little.head_weights < 0.6e9
    assert eight.kv_bytes() == 2 * 36 * 8 * 128 * 2


def test_formats_weigh_what_they_keep():
    assert SMALL.weight_bytes("int8") == SMALL.weight_bytes("bf16") / 2
    assert SMALL.weight_bytes("int4") == pytest.approx(SMALL.weight_bytes("bf16") / 4, rel=0.07)
    assert SMALL.kv_bytes("int8") == 2 * 2 * 2 * (4 + 2)


def test_answers_read_their_contexts_once_a_token_and_the_weights_once_a_step():
    # Contexts of 4, 5 and 6 tokens, then of 3; the longer answer has three steps.
    expected = (4 + 5 + 6 + 3) * SMALL.kv_bytes() + 3 * SMALL.weight_bytes("bf16")
    assert SMALL.answering_bytes([(3, 3), (2, 1)]) == expected


def test_a_prompt_s_tokens_see_those_before_them():
    assert attention_operations(4, 4, 3) == 4 * 4 * 4 * (1 + 2 + 3)
    products = 2 * SMALL.layer_weights * 3 + 2 * SMALL.head_weights
    assert SMALL.prompt_operations([3]) == products + 2 * attention_operations(4, 4, 3)


def test_kernels_that_run_beside_one_another_keep_a_card_busy_once(tmp_path):
    spans = [("a", 0, 10), ("b", 5, 10), ("a", 40, 5), ("c", 41, 2)]
    events = [{"cat": "kernel", "name": name, "ts": start, "dur": taken} for name, start, taken in spans]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"traceEvents": [*events, {"cat": "cpu_op", "name": "d", "ts": 0, "dur": 90}]}))
    busy, longest = busy_seconds(path, ("kernel",))
    assert busy == pytest.approx(20e-6)
    assert [name for name, _ in longest] == ["a", "b", "c"] and longest[0][1] == pytest.approx(15e-6)


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


@for_each("fails", [True, False])
def test_a_figure_beside_a_plain_one_is_there_only_where_the_plain_one_is(fails, tmp_path, monkeypatch):
    @contextmanager
    def opened(setting, shape, **options):
        if fails and (options.get("quantization", "none") is None or options == {"max_num_seqs": trees.NUM_FEW}):
            raise RuntimeError("it doesn't start")
        yield None, SMALL

    monkeypatch.setattr(trees, "opened", opened)
    monkeypatch.setattr(trees, "step_seconds", lambda *given: (1.0, 1.0))
    monkeypatch.setattr(trees, "_prompts", lambda *given: ())
    monkeypatch.setattr(trees, "_rounds", lambda name, *given: [Figure(name, 1.0, "tokens/s")])
    for section, words in ((trees.decode, "beside bf16"), (trees.price, "of the rate without")):
        setting, names = Setting("cpu", True, {}, tmp_path), []
        for part in section(setting):
            try:
                names += [figure.name for figure in part.figures()]
            except RuntimeError:
                names.append("failed")
        assert ("failed" in names) is fails
        assert any(words in name for name in names) is not fails, names


@for_each("is_small", [True, False])
def test_the_search_for_a_fault_names_the_time_that_it_has_waited(is_small, monkeypatch):
    waited = []

    def run(words, timeout, **more):
        waited.append(timeout)
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(bisect_gpu.subprocess, "run", run)
    assert bisect_gpu.found("cpu", "float32", is_small, {}) == f"no answer within {waited[0]} s"
