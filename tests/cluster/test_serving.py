"""What runs on a Ray cluster, without one: a door whose replicas die where a test says, and `Generate`.

All share one tree that computes nothing. `test_ray.py` has a real cluster.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from builders.later import Later
from builders.warm_trees import LentTrees

from penstock import LLM
from penstock.protocol.errors import ConfigError

dataset, door, ray, serving = map(Later, (f"penstock.cluster.{name}" for name in ("dataset", "door", "ray", "serving")))
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
    """A handle as Serve gives it to a door; each of its calls dies after so many messages of the answer."""

    def __init__(self, deaths: list[int]) -> None:
        self.deaths = deaths
        self.answer = SimpleNamespace(remote=lambda request: Call(self.replica, request, self.deaths))

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
    def __init__(self, replica: Any, request: Any, deaths: list[int]) -> None:
        self._messages, self._left = replica.answer(request), deaths.pop(0) if deaths else 10**9

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if not self._left:
            await self._messages.aclose()
            raise Later("ray.exceptions").RayActorError
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


def text_of(answer: str) -> str:
    return json.loads(answer)["choices"][0]["message"]["content"]


def test_a_dead_replica_loses_no_request_and_the_answer_that_came_through_it_ends_with_the_cause() -> None:
    async def answers() -> None:
        serve = Serve([])
        application = await serve.start()
        status, undisturbed = await asked(application)
        assert status == 200 and text_of(undisturbed)
        for deaths in ([0], [1]):  # before its first message, and behind the head that waits for what follows
            serve.deaths = deaths
            status, answer = await asked(application)
            assert (status, text_of(answer), deaths) == (200, text_of(undisturbed), [])
        serve.deaths = [0, 1]
        status, answer = await asked(application)
        assert status == 500 and "died, 2 in a row" in answer, "what kills two replicas is not sent to all of them"
        serve.deaths = [2]
        status, answer = await asked(application, stream=True)
        assert status == 200 and "The replica that was answering has died" in answer.split("data: ")[-1]
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


def test_options_that_cannot_work_are_refused_where_somebody_reads_it() -> None:
    for given, words in (
        ({"num_replicas": 0}, "num_replicas=0"),
        ({"num_replicas": True}, "num_replicas=True"),
        ({"num_replicas": 2, "autoscaling": {"max_replicas": 3}}, "exclude"),
        ({"num_cpus": -1}, "num_cpus=-1"),
        ({"kv_cache_dtype": "int3"}, "kv_cache_dtype"),
        ({"http": {"htp": "127.0.0.1"}}, "htp"),
        ({"num_replica": 2}, "num_replica"),
    ):
        with pytest.raises((ConfigError, TypeError), match=words):
            ray.deployment("pocket", **given)
    with pytest.raises(ConfigError, match="A model is needed"):
        ray.app({})
