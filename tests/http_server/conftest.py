"""One pocket for the whole folder, and a server before it."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from builders.served import Served, running_model, served


@pytest.fixture(scope="session")
def pocket() -> Iterator[tuple]:
    options = {"reasoning_parser": "auto", "tool_call_parser": "auto", "max_model_len": 2048, "max_num_seqs": 16}
    with running_model("pocket", **options) as found:
        yield found


@pytest.fixture(scope="session")
def server(pocket) -> Iterator[Served]:
    with served(*pocket) as found:
        yield found


@pytest.fixture(scope="session")
def http(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def client(server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client
