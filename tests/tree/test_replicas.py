"""Several trees behind one front end, with real processes: answers, deaths, adapters, figures, and the end."""

import os
import signal

import pytest
from builders.adapters import adapter
from builders.watching import shared_while, stopped, wait_until

from penstock import LLM, SamplingParams
from penstock.protocol.errors import ConfigError
from penstock.protocol.parameters.sampling import SamplingParams as Params

LONG = Params(max_tokens=3000, ignore_eos=True, temperature=1, seed=5)


@pytest.fixture(scope="module")
def trees_shared(model_folder):
    options = {"load_format": "stand-in", "max_model_len": 4096, "num_threads": 2, "enable_lora": True, "quiet": True}
    with shared_while(
        lambda llm: not llm._session.transport.is_closed, lambda: LLM(model_folder, data_parallel_size=2, **options)
    ) as given:
        yield given


@pytest.fixture
def trees(trees_shared):
    return trees_shared()


def pids(llm: LLM) -> list[list[int]]:
    replicas = llm._session.transport.replicas
    return [[child.popen.pid for child in replica.transport.tree.children] for replica in replicas]


def streamed(llm: LLM, at_first=lambda: None) -> tuple[list[int], str, set[str]]:
    tokens, text, notices = [], "", set()
    for output in llm.stream("Once", LONG):
        if not tokens:
            at_first()
        tokens += output.outputs.token_ids
        text += output.outputs.text
        notices |= {output.notice} - {None}
    return tokens, text, notices


def test_a_stream_goes_on_in_the_other_tree_and_the_dead_one_comes_back(trees, model_folder, tmp_path):
    trees.load_lora("a", adapter(tmp_path, model_folder))
    prompts = [f"question {number}" for number in range(12)]
    alone = trees.generate(prompts, SamplingParams(max_tokens=20, seed=1), use_tqdm=False)
    each = trees.stats().replicas
    assert all(stats.generated_tokens > 0 for stats in each)
    tokens, text, notices = streamed(trees)
    assert len(tokens) == 3000 and not notices
    before = pids(trees)

    def kill_its_worker() -> None:
        workers = [tree[0] for tree in before]
        with stopped(*workers):  # so that the answer can't end before its tree is found
            [number] = [number for number, stats in enumerate(trees.stats().replicas) if stats.running]
            os.kill(workers[number], signal.SIGKILL)

    again, text_again, notices = streamed(trees, kill_its_worker)
    assert (again, text_again) == (tokens, text)
    [notice] = notices
    assert notice.startswith("The processes that computed this answer died; this answer goes on from its")
    replicas = trees._session.transport.replicas
    wait_until(lambda: all(replica.is_open for replica in replicas), "the dead tree is started again")
    after = pids(trees)
    assert sum(old == new for old, new in zip(before, after)) == 1
    named = SamplingParams(max_tokens=20, seed=1, lora_name="a")
    answers = trees.generate(prompts, named, use_tqdm=False)  # both trees know it
    assert [answer.error_msg for answer in answers] == [None] * 12
    assert all(stats.generated_tokens > 0 for stats in trees.stats().replicas)
    same = trees.generate(prompts, SamplingParams(max_tokens=20, seed=1), use_tqdm=False)
    assert [each.outputs.token_ids for each in same] == [each.outputs.token_ids for each in alone]
    trees.unload_lora("a")
    assert trees.list_loras() == []


def test_an_adapter_is_in_all_trees_or_in_none(trees, model_folder, tmp_path):
    folder = adapter(tmp_path, model_folder)
    trees._session.adapters._replicas[1].adapters.load("b", folder)  # so that this tree refuses it
    with pytest.raises(ConfigError, match="already"):
        trees.load_lora("b", folder)
    assert trees._session.adapters._replicas[0].adapters.names() == [] and trees._session.adapters.folders() == {}
    trees._session.adapters._replicas[1].adapters.unload("b")


def test_close_ends_the_processes_of_all_trees(trees):
    every = [pid for tree in pids(trees) for pid in tree]
    assert len(every) == 6
    trees.close()
    assert not [pid for pid in every if os.path.exists(f"/proc/{pid}")]
