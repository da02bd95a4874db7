"""Makes JSON schemas from Python functions, from type hints and docstring, as transformers does.

A tool given as a dict is its schema already.
"""

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...protocol.errors import RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import slip
from .conversation_checks import check_names

_TYPES: dict[Any, dict[str, str]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
}
_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}

DEFINITIONS = ("$defs", "definitions")
_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
_OF_FUNCTIONS = ("name", "description", "parameters", "strict", "return", "returns")
# Keywords that contain schemas.
_BY_NAME, _LISTS = ("properties", *DEFINITIONS), ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not")
# How alike a misspelt type and the intended one must be. Models understand other names of types, too: dict, float.
_SLIP_OF_TYPE = 0.8
# With other keywords than these, a tool's schema may allow arguments that its properties don't name.
_PLAIN_KEYWORDS = {"type", "properties", "required", "title", "description", "$schema", *DEFINITIONS}

_DESCRIPTION = re.compile(r"^(.*?)[\n\s]*(Args:|Returns:|Raises:|\Z)", re.DOTALL)
_ARGUMENTS = re.compile(r"\n\s*Args:\n(.*?)[\n\s]*(Returns:|Raises:|\Z)", re.DOTALL)
_RETURNS = re.compile(r"\n\s*Returns:\n\s*(.*?)[\n\s]*(Raises:|\Z)", re.DOTALL)
# "name: description"; the description continues until the next name that is not indented deeper.
_ARGUMENT = re.compile(r"(?:^|\n)([ \t]*)(\w+):\s*(.*?)\s*(?=\n(?!\1[ \t])[ \t]*\w+:|\Z)", re.DOTALL)
_CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE)


def tool_schema(tool: Mapping[str, Any] | Callable[..., Any]) -> Mapping[str, Any]:
    """The tool itself if it is a schema, otherwise the schema of the function."""
    if isinstance(tool, Mapping):
        if "name" in tool and not isinstance(tool.get("function"), Mapping):
            raise RequestError(
                f"The tool {shown(tool['name'])} is not in the form that templates read: "
                '{"type": "function", "function": {"name": …, "description": …, "parameters": …}}.'
            )
        return tool
    if not (inspect.isfunction(tool) or inspect.ismethod(tool)):
        raise RequestError(f"A tool is a JSON schema (a dict) or a function, not {type(tool).__name__}.")
    try:
        return _function_schema(tool)
    except (TypeError, NameError, ValueError) as error:
        raise RequestError(
            f"The tool {tool.__name__} cannot be described from its signature: {error}. Give its JSON schema instead."
        ) from error


def check_tools(tools: Any) -> None:
    if not isinstance(tools, (list, tuple)):
        raise RequestError(f"tools must be a list of JSON schemas or functions, not {type(tools).__name__}.")
    for tool in tools:
        check_tool(tool)


def check_tool(tool: Any) -> None:
    """Raise `RequestError` for a misspelling in a tool's description, which a model would misunderstand."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return
    check_names("A tool", tool, ("type", "function"))
    check_names("The function of a tool", function, _OF_FUNCTIONS)
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        raise RequestError(f"The name of a tool's function must be text, not {shown(name)}.")
    if isinstance(parameters, (str, bytes, int, float, list, tuple)):
        raise RequestError(f"The tool {shown(name)}: parameters must be a JSON schema, not {shown(parameters)}.")
    schemas, seen = [parameters], set[int]()
    while schemas:
        schema = schemas.pop()
        if isinstance(schema, Mapping) and id(schema) not in seen:  # a schema may contain itself
            seen.add(id(schema))
            _check_type(name, schema.get("type"))
            schemas += [schema.get(key) for key in _SINGLE]
            schemas += [each for key in _BY_NAME if isinstance(of := schema.get(key), Mapping) for each in of.values()]
            schemas += [each for key in _LISTS if isinstance(of := schema.get(key), (list, tuple)) for each in of]


def _check_type(tool: str, given: Any) -> None:
    known = tuple(_SCALARS.values()) + ("array", "object")
    for each in given if isinstance(given, (list, tuple)) else (given,):
        if isinstance(each, str) and each.casefold() not in known and (meant := slip(each, known, _SLIP_OF_TYPE)):
            raise RequestError(f"The tool {shown(tool)}: JSON has no type {shown(each)}. Did you mean {meant}?")


def described_functions(tools: Sequence[Any] | None) -> dict[str, Mapping[str, Any]]:
    """The description of each function, by name. A tool that can't be described is left out."""
    functions: dict[str, Mapping[str, Any]] = {}
    for tool in tools or ():
        try:
            described = tool_schema(tool)
        except RequestError:  # rendering will report it
            continue
        function = described.get("function", described)
        if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
            functions[name] = function
    return functions


def argument_schemas(functions: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The schemas of each function's arguments, by the names of both."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for name, function in functions.items():
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        schemas[name] = properties if isinstance(properties, Mapping) else {}
    return schemas


def arguments_schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a call's arguments. It allows no unnamed arguments: a model that has written those it knows
    might go on for ever."""
    schema: Mapping[str, Any] = function.get("parameters") or _NO_ARGUMENTS
    return {**_NO_ARGUMENTS, **schema} if schema.keys() <= _PLAIN_KEYWORDS else schema


def _function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    documentation = inspect.getdoc(function)
    if not documentation:
        raise ValueError("it has no docstring")
    documentation = documentation.strip()
    parameters = _parameters(function)
    descriptions = _argument_descriptions(documentation)
    for name, schema in parameters["properties"].items():
        if name not in descriptions:
            raise ValueError(f"its docstring says nothing of the argument {name!r} under Args:")
        _describe(schema, descriptions[name])
    schema = {
        "name": function.__name__,
        "description": _group(_DESCRIPTION, documentation),
        "parameters": parameters,
    }
    result = get_type_hints(function).get("return", inspect.Parameter.empty)
    if result is not inspect.Parameter.empty and (returned := _returned(result, documentation)) is not None:
        schema["return"] = returned
    return {"type": "function", "function": schema}


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for position, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if position == 0 and name in ("self", "cls") and parameter.annotation is parameter.empty:
            continue
        if name not in hints:
            raise TypeError(f"the argument {name!r} has no type hint")
        properties[name] = _schema_of(hints[name])
        if parameter.default is parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _returned(hint: Any, documentation: str) -> dict[str, Any] | None:
    """The schema of the result; None if the type has no JSON form: a model never writes a result, so the tool is
    still usable."""
    try:
        schema = _schema_of(hint)
    except TypeError:
        return None
    description = _group(_RETURNS, documentation)
    return schema if description is None else {**schema, "description": description}


def _schema_of(hint: Any) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None and isinstance(hint, type) and issubclass(hint, Enum):
        return _choice([member.value for member in hint])
    if origin is None and hint in _TYPES:
        return dict(_TYPES[hint])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _choice(list(arguments))
    if origin is list:
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin is tuple and len(arguments) > 1 and ... not in arguments:
        return {"type": "array", "prefixItems": [_schema_of(argument) for argument in arguments]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    raise TypeError(f"the type {hint!r} has no JSON schema")


def _union(arguments: tuple[Any, ...]) -> dict[str, Any]:
    members = [_schema_of(argument) for argument in arguments if argument is not type(None)]
    if len(members) == 1:
        schema = members[0]
    elif all(member.keys() == {"type"} and isinstance(member["type"], str) for member in members):
        names = sorted({member["type"] for member in members})
        schema = {"type": names[0] if len(names) == 1 else names}
    else:
        schema = {"anyOf": members}
    return {**schema, "nullable": True} if type(None) in arguments else schema


def _choice(values: list[Any]) -> dict[str, Any]:
    if not values or any(type(value) not in _SCALARS for value in values):
        raise TypeError(f"the choices {values!r} are not all numbers, strings, booleans or None")
    kinds = list(dict.fromkeys(_SCALARS[type(value)] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _argument_descriptions(documentation: str) -> dict[str, str]:
    section = _ARGUMENTS.search(documentation)
    if section is None:
        return {}
    lines = "\n".join(line for line in section[1].split("\n") if line.strip())
    return {name: re.sub(r"\s*\n+\s*", " ", text.strip()) for _, name, text in _ARGUMENT.findall(lines)}


def _describe(schema: dict[str, Any], description: str) -> None:
    if choices := _CHOICES.search(description):
        schema["enum"] = [item.strip() if isinstance(item, str) else item for item in json.loads(choices[1])]
        description = description[: choices.start()].strip()
    schema["description"] = description


def _group(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1].strip() if found else None
