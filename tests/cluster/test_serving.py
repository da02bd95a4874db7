"""What runs on a Ray cluster, without one: a door whose replicas die where a test says, and `Generate`.

All share one tree that computes nothing. `test_ray.py` has a real cluster.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from builders.later import Later
from builders.warm_trees import LentTrees

from penstock import LLM
from penstock.frontend.jobs.journal.records import Answered, JobState
from penstock.protocol.errors import ConfigError, EngineDeadError

dataset, door, ray, serving, sharded_run = (
    Later(f"penstock.cluster.{name}") for name in ("dataset", "door", "ray", "serving", "sharded_run")
)
exceptions = Later("ray.exceptions")
pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(find_spec("ray") is None, reason="RAY IS NOT TESTED: it is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]
QUESTIONS = [f"What is {number} + {number}?" for number in range(8)]
SAMPLING = {"temperature": 1, "seed": 5, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    lent = LentTrees(alike=["num_threads"], load_format="stand-in", max_model_len=512)
    with lent.in_place():
        yield
    lent.close()


class Serve:
    """A handle as Serve gives it to a door; each of its calls loses its replica after so many messages."""

    def __init__(self) -> None:
        self.deaths: list[int] = []
        self.loss: Exception = exceptions.ActorDiedError()
        self.answer = SimpleNamespace(remote=lambda request: Call(self, request))

    def options(self, stream: bool) -> "Serve":
        return self

    async def start(self) -> Any:
        class Replica(serving.Replica):
            def __del__(self) -> None:
                """Serve awaits the one that it has."""

        self.replica = Replica.__new__(Replica)
        await self.replica.__init__("pocket", ["pocket"], {}, {"quiet": True})
        return door.Door(self, {}).__serve_build_asgi_app__()

    async def close(self) -> None:
        await serving.Replica.__del__(self.replica)


class Call:
    def __init__(self, serve: Serve, request: Any) -> None:
        self._messages, self._loss = serve.replica.answer(request), serve.loss
        self._left = serve.deaths.pop(0) if serve.deaths else 10**9

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if not self._left:
            await self._messages.aclose()
            raise self._loss
        self._left -= 1
        return await anext(self._messages)

    def cancel(self) -> None: ...


async def asked(application: Any, **fields: Any) -> tuple[int, str]:
    """The status and the body of a chat's answer."""
    body = json.dumps(
        {"model": "pocket", "messages": [{"role": "user", "content": QUESTIONS[3]}], **SAMPLING, **fields}
    )
    arriving, sent = [{"type": "http.request", "body": body.encode(), "more_body": False}], []

    async def receive() -> Any:
        return arriving.pop() if arriving else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = {"path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions", "query_string": b"", "root_path": ""}
    scope = {"type": "http", "method": "POST", "headers": headers, "client": ("127.0.0.1", 9), **path}
    await application(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode()


async def upgraded(application: Any) -> list[Any]:
    """What somebody gets who asks for a WebSocket."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "websocket", "path": "/", "headers": []}, None, send)
    return sent


def text_of(answer: str) -> str:
    return json.loads(answer)["choices"][0]["message"]["content"]


def test_a_dead_replica_loses_no_request_and_the_answer_that_came_through_it_ends_with_the_cause() -> None:
    async def answers() -> None:
        serve = Serve()
        application = await serve.start()
        status, undisturbed = await asked(application)
        assert status == 200 and text_of(undisturbed)
        losses = (
            exceptions.ActorDiedError(), exceptions.ActorUnavailableError("away", None), exceptions.NodeDiedError("x"),
            exceptions.OutOfMemoryError("the node runs low on memory"), exceptions.WorkerCrashedError(),
        )  # fmt: skip
        # Before its first message, and behind the head that waits for what follows.
        for serve.loss, number in product(losses, (0, 1)):
            serve.deaths = [number]
            status, answer = await asked(application)
            assert (status, text_of(answer), serve.deaths) == (200, text_of(undisturbed), [])
        serve.deaths = [0, 1, 0, 1]
        status, answer = await asked(application)
        assert status == 500 and "ended, 4 in a row" in answer, "what kills four replicas is not sent to all of them"
        serve.deaths = [2]
        status, answer = await asked(application, stream=True)
        assert status == 200 and "The replica that was answering is gone" in answer.split("data: ")[-1]
        assert await upgraded(application) == [{"type": "websocket.close"}]
        await serve.close()

    asyncio.run(answers())


def test_rows_of_a_dataset_have_the_answers_of_an_llm_and_a_bad_row_fails_alone() -> None:
    messages: list[Any] = [[{"role": "user", "content": question}] for question in QUESTIONS]
    messages[5] = [{"role": "nobody", "content": "?"}]
    column = numpy.empty(len(messages), object)
    column[:] = messages

    async def batch() -> dict[str, Any]:
        generate = dataset.Generate("pocket", SAMPLING)
        [found] = [each async for each in generate({"messages": column, "id": numpy.arange(len(messages))})]
        return found

    found = asyncio.run(batch())
    assert found["error_code"].tolist() == [200] * 5 + [400] + [200] * 2 and "nobody" in found["error_msg"][5]
    with LLM("pocket") as llm:
        params = llm.get_default_sampling_params()
        alone = llm.chat(messages[:5], Later("msgspec").structs.replace(params, **SAMPLING))
    assert found["generated_text"].tolist()[:5] == [output.outputs[0].text for output in alone]
    assert found["generated_text"][5] == "" and found["num_output_tokens"].tolist() == [24] * 5 + [0] + [24] * 2


def test_a_job_ends_where_its_workers_die_again_and_again_and_gives_no_answer_meanwhile() -> None:
    state, answered = JobState(), []
    job = SimpleNamespace(options=None, input_digest="", commit_seconds=1.0, state=state, append=state.take)
    actor = SimpleNamespace(remote=lambda *arguments: object())
    placement = SimpleNamespace(options=dict, num_replicas=2, actor=lambda *kind, **options: actor)
    run = sharded_run.ShardedRun(job, "pocket", {}, placement, answered.append)
    shard = sharded_run.RunningShard(actor, [], b"")
    for row in range(3):
        for _ in range(12):  # three of each worker's two shards
            run._lose(shard, exceptions.NodeDiedError("x"))
        if row < 2:
            run._append(Answered(row, 0, 200, 1, 0, 1, b"{}"), shard)
    assert [each.row for each in answered] == [0, 1] and len(run._lost_rows) == 36
    with pytest.raises(EngineDeadError, match="die again and again: .*x"):
        run._lose(shard, exceptions.NodeDiedError("x"))


def test_options_that_cannot_work_are_refused_where_somebody_reads_it() -> None:
    for given, words in (
        ({"num_replicas": 0}, "num_replicas=0"),
        ({"num_replicas": True}, "num_replicas=True"),
        ({"num_replicas": 2, "autoscaling": {"max_replicas": 3}}, "exclude"),
        ({"num_cpus": -1}, "num_cpus=-1"),
        ({"kv_cache_dtype": "int3"}, "kv_cache_dtype"),
        ({"http": {"htp": "127.0.0.1"}}, "htp"),
        ({"num_replica": 2}, "Did you mean num_replicas"),
        ({"autoscaling": {"min_replica": 3}}, "Did you mean min_replicas"),
        ({"autoscaling": {"min_replicas": 3, "max_replicas": 2}}, "autoscaling="),
        ({"drain": -1}, "drain=-1"),
        ({"connect": "auto"}, "connect is for a daemon"),
        ({"record": "x.rec"}, "record writes down one tree"),
        ({"name": ""}, "name=''"),
    ):
        with pytest.raises((ConfigError, TypeError), match=words):
            ray.deployment("pocket", **given)
    with pytest.raises(ConfigError, match="A model is needed"):
        ray.app({})
    for given in ({"max_toks": 8}, {"temperature": -1}):
        with pytest.raises(ConfigError, match="sampling_params: "):
            dataset.Generate("pocket", given)
    column = numpy.array([b"a", b"b"], object)  # bytes, in a dataset without ids
    found = asyncio.run(anext(dataset.Generate("pocket", SAMPLING)({"prompt": column})))
    assert found["error_code"].tolist() == [400, 400]
