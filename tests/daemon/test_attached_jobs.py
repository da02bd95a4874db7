"""Jobs through the daemon: they have a tree's bytes, settings and replays, whoever has begun them."""

import itertools
import json

import pytest
from builders.watching import wait_until

from penstock import LLM
from penstock.frontend import cli
from penstock.frontend.jobs import job
from penstock.frontend.jobs.head import facts_of_model
from penstock.frontend.jobs.job import Job, JobOptions
from penstock.frontend.jobs.job_files import JobFiles

TALK = [{"role": "user", "content": "What is 12 + 7?"}]


def test_a_job_that_a_tree_has_begun_is_continued_through_the_daemon_and_makes_the_same_bytes(
    daemon, private, tmp_path
):
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(f'{{"prompt": "prompt {n}", "max_tokens": {n + 1}, "logprobs": 1}}' for n in range(30)))

    def stop(row: object, output: object) -> None:
        if job.state.num_done == 9:
            raise KeyboardInterrupt

    with Job(source, tmp_path / "both", JobOptions(model="pocket")) as job:
        job.begin(private._session)
        with pytest.raises(KeyboardInterrupt):
            job.run(private._session, stop)
    with daemon.attach() as attached:
        assert attached.batch(source, tmp_path / "both").num_answers == 30
        attached.batch(source, tmp_path / "daemon")
    private.batch(source, tmp_path / "tree")
    made = {(tmp_path / name).read_bytes() for name in ("both", "daemon", "tree")}
    assert len(made) == 1 and JobFiles.of(tmp_path / "both").state().num_done == 30
    assert [verdict.status for verdict in private.verify(tmp_path / "both")] == ["proved"] * 30, "by its journal"
    for name in ("both", "daemon", "tree"):
        JobFiles.of(tmp_path / name).export(with_receipts=True)
    made = {(tmp_path / name).read_bytes() for name in ("both", "daemon", "tree")}
    assert len(made) == 1 and made.pop().count(b'"receipt":') == 30


def test_a_finished_job_is_compared_with_the_daemons_model_as_with_any(daemon, tmp_path, monkeypatch, capsys):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('"one"\n')
    words = ["batch", str(source), str(out), "--model", "pocket", "--connect", str(daemon.address), "--max-tokens", "2"]
    with monkeypatch.context() as earlier:
        earlier.setattr(job, "facts_of_model", lambda session: {**facts_of_model(session), "weights": "others"})
        assert cli.main(words) == 0
    assert cli.main(words) == 1 and "other settings: weights changed from others to " in capsys.readouterr().err
    assert cli.main([*words, "--accept-change"]) == 0 == cli.main(words)


def test_a_client_replays_a_run_of_its_own_and_the_daemon_gets_its_tokens_alone(start, tmp_path):
    # It finds next to nothing to draft by itself.
    method = 'speculative_config = {method = "ngram", prompt_lookup_min = 16, prompt_lookup_max = 16}'
    daemon = start(f'[models.pocket]\nmax_model_len = 512\nkv_cache_memory = "64MiB"\n{method}\n')
    source, last = tmp_path / "in.jsonl", tmp_path / "last.jsonl"
    line = {"url": "/v1/chat/completions", "body": {"messages": TALK, "max_tokens": 40, "ignore_eos": True}}
    source.write_text("\n".join(json.dumps({"custom_id": str(number), **line}) for number in range(5)))

    numbers = itertools.count()

    def has_drafts(llm: LLM, **options: object) -> bool:
        """Run it again, to the same answers; tell whether more drafts are accepted than without what it replays."""
        llm.batch(source, again := tmp_path / f"again {next(numbers)}.jsonl", **options)
        assert again.read_bytes() == last.read_bytes()
        accepted, alone = (JobFiles.of(path).state().num_accepted_tokens for path in (again, last))
        return accepted > alone + 20

    with LLM("pocket", connect=str(daemon.address), quiet=True) as attached:
        attached.batch(source, last)
        # Drafts are checked where they pay, and for a while the steps of a busy machine may say that they don't.
        wait_until(lambda: has_drafts(attached, replay=last), "a run has drafts of the last one")
    config = {"method": "replay", "file": str(last)}
    with LLM("pocket", connect=str(daemon.address), quiet=True, speculative_config=config) as attached:
        wait_until(lambda: has_drafts(attached), "a run has drafts of the last one")
