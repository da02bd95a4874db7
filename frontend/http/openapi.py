"""The OpenAPI document, made from the table of operations and the structs of their bodies."""

from typing import Any

import msgspec

from .answers.error_forms import error_form
from .operations import OPERATIONS, Operation
from .schemas.messages import AnthropicError
from .schemas.ollama import OllamaError
from .schemas.others import ErrorBody

_Schemas = dict[type[msgspec.Struct], dict[str, Any]]

_REFERENCE = "#/components/schemas/{name}"
_FAULTS = {
    400: "The request is wrong; the message says why",
    401: "A known API key is needed",
    403: "The Host header names another server",
    404: "There is no such model or request",
    409: "What is asked for has ended already",
    408: "The body or the answer took too long",
    413: "The body is too large",
    415: "The body is not JSON, or compressed",
    499: "The request was stopped by whoever sent it",
    429: "Too many requests wait; Retry-After says when to ask again",
    500: "Something failed in the server",
    503: "The model can't answer now",
    507: "The server's disk is full",
}
_ONLY_WITH_BODY = frozenset({404, 408, 409, 413, 415, 429, 499, 507})
_NAMED = {"name": "named", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def document(version: str) -> dict[str, Any]:
    structs = (each for row in OPERATIONS for each in (row.body, row.reply, row.event) if each)
    known: list[type[msgspec.Struct]] = list(dict.fromkeys([ErrorBody, AnthropicError, OllamaError, *structs]))
    schemas, components = msgspec.json.schema_components(known, ref_template=_REFERENCE)
    named = dict(zip(known, schemas, strict=True))
    return {
        "openapi": "3.2.0",  # the first version that can describe the events of a stream
        "info": {"title": "Penstock", "version": version, "description": "Large language models on this machine."},
        "paths": _paths(named),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "anthropic": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"key": []}, {"anthropic": []}],
    }


def _paths(named: _Schemas) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    for row in OPERATIONS:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, named)
    return paths


def _operation(row: Operation, named: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": row.sentence,
        "operationId": f"{row.method.lower()}_{row.path.strip('/').replace('/', '_').replace('{named}', 'named')}",
        "responses": {"200": {"description": "Done", "content": _content(row, named)}, **_faults(row, named)},
    }
    parameters = [_NAMED] if "{named}" in row.path else []
    if row.query is not None:
        properties = msgspec.json.schema_components([row.query], ref_template=_REFERENCE)[1][row.query.__name__]
        for name, schema in properties["properties"].items():
            parameters.append({"name": name, "in": "query", "required": False, "schema": schema})
    if parameters:
        described["parameters"] = parameters
    if row.body is not None:
        kind = "multipart/form-data" if row.is_upload else "application/json"
        described["requestBody"] = {"required": True, "content": {kind: {"schema": named[row.body]}}}
    return described


def _content(row: Operation, named: _Schemas) -> dict[str, Any]:
    if row.reply is None:
        return {row.media_type: {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": named[row.reply]}}
    if row.event is not None and row.streams_lines:
        error = named[error_form(row.path).schema]
        content["application/x-ndjson"] = {"itemSchema": {"anyOf": [named[row.event], error]}}
    elif row.event is not None:
        content["text/event-stream"] = {"itemSchema": _event(row, named)}
    return content


def _event(row: Operation, named: _Schemas) -> dict[str, Any]:
    """One server-sent event: its data is a piece or an error as JSON, or the end of the stream."""
    error = named[error_form(row.path).schema]
    content = {"anyOf": [named[row.event], error]} if row.event is not None else {}
    piece = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    fields = {"event": {"type": "string"}, "data": {"anyOf": [{"const": "[DONE]"}, piece]}}
    return {"type": "object", "properties": fields, "required": ["data"]}


def _faults(row: Operation, named: _Schemas) -> dict[str, Any]:
    schema = named[error_form(row.path).schema]
    left_out = _ONLY_WITH_BODY - ({404, 409} if "{named}" in row.path else set())
    left_out = frozenset() if row.body is not None else left_out
    return {
        str(status): {"description": sentence, "content": {"application/json": {"schema": schema}}}
        for status, sentence in _FAULTS.items()
        if status not in left_out
    }
