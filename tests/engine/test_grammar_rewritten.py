"""What became of a schema accepts what the schema itself does: random schemas, judged by the `jsonschema` package."""

from random import Random

import pytest
from builders import random_schemas
from builders.accepting import accepts_value, matcher
from jsonschema import Draft202012Validator

from penstock.protocol.errors import RequestError

# Each keyword meets those that narrow the same values.
OF_OBJECTS = ("properties", "required", "type", "closed", "patternProperties")
KEYWORDS = {
    "oneOf": ("oneOf", "const", "enum", *OF_OBJECTS),
    "not": ("not", "bounds", "length", "pattern", "enum", "items", *OF_OBJECTS),
    "if": ("if", "const", "enum", *OF_OBJECTS),
    "dependentRequired": ("dependentRequired", "not", *OF_OBJECTS),
    "dependentSchemas": ("dependentSchemas", "not", *OF_OBJECTS),
    "contains": ("contains", "prefixItems", "items", "not", "type", "const"),
    "uniqueItems": ("uniqueItems", "prefixItems", "anyOf", "type"),
    "sizes": ("sizes", "not", "propertyNames", *OF_OBJECTS),
    "multipleOf": ("multipleOf", "enum", "not", "bounds", "type"),
    "all": random_schemas.KEYWORDS,
}


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_rewritten_schema_accepts_the_values_that_the_schema_accepts(keyword):
    assert compared(keyword, range(40)) >= 60


@pytest.mark.long
@pytest.mark.parametrize("keyword", KEYWORDS)
def test_thousands_of_rewritten_schemas_accept_the_values_that_they_should(keyword):
    assert compared(keyword, range(1000, 2500)) >= 2000


def compared(keyword: str, seeds: range) -> int:
    """How many values were decided, all of them rightly."""
    decided = 0
    for seed in seeds:
        random = Random(f"{keyword} {seed}")
        schema = {**random_schemas.part(random, keyword if keyword != "all" else "oneOf", KEYWORDS[keyword])}
        try:
            compiled = matcher(json=schema)
        except RequestError:
            continue
        error = compiled.error
        if error is not None and "nsatisfiable" not in error:
            continue
        judge = Draft202012Validator(schema)
        for value in [random_schemas.value(random) for _ in range(8)]:
            is_accepted = False if error is not None else accepts_value(compiled, value)
            if is_accepted is not None:
                decided += 1
                assert is_accepted is judge.is_valid(value), f"{schema} and {value!r}"
    return decided
