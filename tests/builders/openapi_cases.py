"""Requests made by chance from an OpenAPI document, sent and held against what it names.

Three of four fit the document, the fourth breaks it in one place or another and must be refused.
"""

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def checked(address: str, session: requests.Session, document: dict, cases: int) -> None:
    """Endpoints without a body have one case each; the others share the rest."""
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations()]
    with_body = [operation for operation in operations if operation.body]
    sent = sum(run(each, address, session, 1, GenerationMode.POSITIVE) for each in operations if not each.body)
    fourth = -(-(cases - sent) // (4 * len(with_body)))
    for operation in with_body:
        sent += run(operation, address, session, 3 * fourth, GenerationMode.POSITIVE)
        sent += run(operation, address, session, fourth, GenerationMode.NEGATIVE)
    assert sent >= cases


def run(operation, address: str, session: requests.Session, examples: int, mode: GenerationMode) -> int:
    """How many were sent."""
    sent = 0

    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case):
        nonlocal sent
        # An empty list is no part of a form, so whatever was wrong with it would not be sent.
        assume(case.media_type != "multipart/form-data" or [] not in case.body.values())
        sent += 1
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            shorten(case.body, operation.path)
        reply = case.call_and_validate(base_url=address, checks=CHECKS, timeout=60, session=session)
        assert mode is GenerationMode.POSITIVE or 400 <= reply.status_code < 500, (case.body, reply.text)

    one()
    return sent


def shorten(body: dict, path: str) -> None:
    """Answers short enough for a test, of a model that is there, whatever else was drawn."""
    if path.startswith("/v1/"):
        body["max_output_tokens" if path.endswith("responses") else "max_tokens"] = 1
    if isinstance(body.get("model"), str):
        body["model"] = "pocket"
