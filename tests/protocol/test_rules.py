"""A value that a rule refuses is shown with the rule's sentence, in whatever error the caller asks for."""

import pytest

from penstock.protocol.errors import ConfigError, RequestError
from penstock.protocol.fields.rules import Rule, integer


def positive(value):
    if value < 0:
        raise ValueError
    if value == 0:
        raise RequestError("Zero has a sentence of its own.")
    return integer(value)


RULE = Rule(positive, lambda value: True, "must be a positive number")


@pytest.mark.parametrize("error", [RequestError, ConfigError, ValueError, TypeError])
@pytest.mark.parametrize("value", [-1, 1.5, "one", None])
def test_the_rules_sentence_is_raised_whatever_the_converter_raised(error, value):
    with pytest.raises(error) as raised:
        RULE.checked("count", value, error)
    assert str(raised.value) == f"count={value!r}: must be a positive number."


@pytest.mark.parametrize("error", [RequestError, ValueError])
def test_a_sentence_of_the_converters_own_is_kept(error):
    with pytest.raises(error, match="Zero has a sentence of its own"):
        RULE.checked("count", 0, error)
