"""The OpenAPI document is true: what is made from it by chance is answered with a status and a body that it names."""

from collections.abc import Callable, Iterator

import pytest
import requests


@pytest.fixture(scope="module")
def document(http) -> dict:
    return http.get("/openapi.json").json()


def test_every_endpoint_is_in_it(document):
    assert set(document["paths"]) == {
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/v1/models/{named}", "/tokenize",
        "/detokenize", "/v1/requests", "/v1/requests/{named}", "/health", "/ping", "/metrics",
    }  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@pytest.fixture(scope="module")
def checked() -> Callable[..., None]:
    from builders.openapi_cases import checked  # seconds of imports, which only these tests need

    return checked


def test_sixty_cases_of_it_meet_no_surprise(server, session, document, checked):
    checked(server.address, session, document, 60)


@pytest.mark.long
def test_two_thousand_cases_of_it_meet_no_surprise(server, session, document, checked):
    checked(server.address, session, document, 2000)
