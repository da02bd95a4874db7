"""Logits processors of an installed package, and an `early_stop` for all, through a real tree."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders.native_variants import available_variants, needs_variant
from builders.plugin_package import plugin_package
from builders.watching import tree_processes

from penstock import LLM, ConfigError, SamplingParams

SOURCE = '''
def only_even(vocab_size, arguments):
    """Where a request says True, tokens of even ids."""
    if arguments is None:
        return None

    def step(tokens, num_prompt, logits):
        if arguments == "break":
            raise OverflowError("too much")
        logits[1::2] = -float("inf")

    return step


def in_tensors(vocab_size, arguments):
    """Where a request has arguments, tokens of odd ids."""

    def step(tokens, num_prompt, logits: "torch.Tensor"):
        logits[::2].fill_(-float("inf"))

    return None if arguments is None else step


def not_there(vocab_size, arguments):
    raise AssertionError("a processor that was not chosen is not asked")
'''
CHOSEN = ["only-even", "in-tensors"]
GREEDY = {"temperature": 0, "max_tokens": 10, "ignore_eos": True}


@pytest.fixture(scope="module")
def tree(tmp_path_factory, model_folder) -> Iterator[LLM]:
    with running(model_folder, package(tmp_path_factory.mktemp("plugins") / "site")) as llm:
        yield llm


def package(folder: Path) -> Path:
    functions = {"only-even": "only_even", "in-tensors": "in_tensors", "other": "not_there"}
    return plugin_package(folder, "penstock_test_processors", SOURCE, {"penstock.logits_processors": functions})


@contextmanager
def running(model_folder: Path, folder: Path) -> Iterator[LLM]:
    sys.path.insert(0, str(folder))
    try:
        options = {"max_model_len": 256, "kv_cache_memory": "16MiB", "deterministic": True, "quiet": True}
        early_stop = {"window_size": 12, "threshold": 1e-9}
        with LLM(model_folder, logits_processors=CHOSEN, early_stop_config=early_stop, **options) as llm:
            yield llm
    finally:
        sys.path.remove(str(folder))


def params(**arguments) -> SamplingParams:
    return SamplingParams(**GREEDY, logits_processors_args=arguments)


def test_a_request_chooses_its_neighbours_are_as_without_and_a_broken_one_fails_alone(tree, llm):
    prompt = [9, 8, 7]
    free = SamplingParams(**GREEDY)
    even, plain = tree.generate([prompt, prompt], [params(**{"only-even": True}), free], use_tqdm=False)
    [without] = llm.generate([prompt], free, use_tqdm=False)
    assert all(token % 2 == 0 for token in even.outputs.token_ids)
    assert plain.outputs.token_ids == without.outputs.token_ids
    assert any(token % 2 for token in plain.outputs.token_ids)
    both = [params(**{"only-even": "break"}), params(**{"only-even": 1})]
    broken, right = tree.generate(["a", "a"], both, use_tqdm=False)
    assert broken.error_code == 500
    assert broken.error_msg == "The logits processor 'only-even' failed: OverflowError: too much"
    assert right.error_code == 200 and len(right.outputs.token_ids) == 10


def test_a_name_that_was_not_chosen_ends_its_request_and_early_stop_config_is_for_those_without(tree, model_folder):
    [output] = tree.generate(["a"], params(other=1), use_tqdm=False)
    assert output.error_code == 400 and f"logits_processors={CHOSEN}" in output.error_msg
    with pytest.raises(ConfigError, match="no entry point 'only-odd' in the group 'penstock.logits_processors'"):
        LLM(model_folder, logits_processors=["only-odd"])
    longer = {**GREEDY, "max_tokens": 20}
    own = [None, {"window_size": 5, "threshold": 1e-9}, {"enable_early_stop": False}]
    outputs = tree.generate(["a"] * 3, [SamplingParams(**longer, early_stop=each) for each in own], use_tqdm=False)
    assert [len(output.outputs.token_ids) for output in outputs] == [12, 5, 20]
    assert [output.outputs.stop_reason for output in outputs] == ["repetition", "repetition", None]
    assert outputs[0].outputs.text == tree.get_tokenizer().decode(outputs[0].outputs.token_ids)


def test_the_first_step_that_asks_for_tensors_has_torch_imported_and_one_line_says_so(tree):
    def has_torch() -> bool:
        return any("/torch/lib/" in Path(f"/proc/{pid}/maps").read_text() for pid in tree_processes(tree).values())

    tree.generate(["a"], params(**{"only-even": True}), use_tqdm=False)
    assert not has_torch() or not available_variants()
    for _ in range(2):
        odd, even = tree.generate(["a"] * 2, [params(**{"in-tensors": 1}), params(**{"only-even": 1})], use_tqdm=False)
        assert all(token % 2 for token in odd.outputs.token_ids) and odd.error_code == 200
        assert not any(token % 2 for token in even.outputs.token_ids)
    said = tree._session.transport.tree.log.read_text().count("The logits processor 'in-tensors' uses torch")
    assert has_torch() and said == bool(available_variants())


@needs_variant
def test_without_torch_a_request_that_asks_for_tensors_is_told_what_to_install(tmp_path, model_folder):
    folder = package(tmp_path / "site")
    (folder / "torch.py").write_text("raise ModuleNotFoundError('as if it were not installed', name='torch')")
    with running(model_folder, folder) as llm:
        [odd, even] = llm.generate(["a"] * 2, [params(**{"in-tensors": 1}), params(**{"only-even": 1})], use_tqdm=False)
    assert even.error_code == 200 and len(even.outputs.token_ids) == 10
    assert odd.error_code == 500 and odd.error_msg == (
        "The logits processor 'in-tensors' needs torch, which isn't installed: pip install 'penstock[torch]'."
    )
