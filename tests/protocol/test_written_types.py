"""What type checkers, editors and help() are told of options and fields is what there is, and each is read by the code
that it is for: one that is checked, documented and handed on, and then read by nobody, is a promise that nothing keeps.
"""

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest
from builders.cases import for_each
from builders.readings import Readings, sources

import penstock
from penstock import LLM, AsyncLLM, BeamSearchParams, CompletionOutput, GuidedDecodingParams, SamplingParams
from penstock.frontend.daemon.settings import DaemonSettings
from penstock.frontend.http.options import HttpOptions
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.foreign_options import TRANSLATED
from penstock.protocol.options.option_rules import SIZE
from penstock.protocol.options.options import EngineOptions
from penstock.protocol.options.speculation import SpeculativeConfig
from penstock.protocol.outputs import Samples
from penstock.protocol.parameters.early_stop import EarlyStop
from penstock.protocol.parameters.sampling_fields import SamplingFields


def test_options_fields_and_the_names_of_the_package_are_written_out_under_the_same_names():
    assert EngineOptions.__annotations__.keys() - TRANSLATED == set(EngineConfig.__struct_fields__) - {"model"}
    assert set(TRANSLATED) < EngineOptions.__annotations__.keys()
    assert list(SamplingFields.__annotations__) == list(SamplingParams.__struct_fields__)
    assert sorted(penstock.__all__) == sorted({"__version__", *penstock._HOME_OF})
    assert set(penstock.__all__) <= set(dir(penstock))


# What a person may write for a field of this type, beside None; Any is for schemas, which come as pydantic models, too.
WRITTEN = {
    list[str]: str | Iterable[str],
    list[int]: int | Sequence[int],
    list[int | list[int]]: int | Sequence[int] | Sequence[Sequence[int]],
    list[list[int]]: Iterable[Sequence[int] | int],
    dict[int, float]: Mapping[int, float] | Mapping[str, float],
    dict[str, typing.Any]: Mapping[str, typing.Any],
    EarlyStop: EarlyStop | Mapping[str, typing.Any],
    SpeculativeConfig: SpeculativeConfig | Mapping[str, typing.Any] | str | bool,
    GuidedDecodingParams: GuidedDecodingParams | Mapping[str, typing.Any],
}
FORMS = {"prediction": str | Mapping[str, typing.Any] | None}
SCHEMAS = {"guided_json", "guided_structural_tag", "structural_tag", "response_format"}


def own_type(field: msgspec.structs.FieldInfo) -> typing.Any:
    """Without its None."""
    kind = field.type.__origin__
    parts = typing.get_args(kind)
    return next(each for each in parts if each is not type(None)) if type(None) in parts else kind


@for_each("field", msgspec.structs.fields(SamplingParams), ids=lambda field: field.name)
def test_a_parameter_is_written_out_with_the_type_that_its_field_has(field):
    written = typing.get_type_hints(SamplingFields)[field.name]
    kind = own_type(field)
    expected = typing.Any if field.name in SCHEMAS else WRITTEN.get(kind, kind) | None
    assert written == FORMS.get(field.name, expected)


@for_each("field", msgspec.structs.fields(EngineConfig)[1:], ids=lambda field: field.name)
def test_an_option_is_written_out_with_the_type_or_the_values_that_its_field_has(field):
    written = typing.get_type_hints(EngineOptions)[field.name]
    parts = {each for each in (typing.get_args(written) or (written,)) if each is not type(None)}
    kind, rule = own_type(field), field.type.__metadata__[0].extra["rule"]
    choices = rule.choices
    if choices and field.name != "connect":  # which may be a path
        values = {value for each in (written, *parts) for value in typing.get_args(each)} | parts
        assert set(choices) <= values | ({True, False} if bool in parts else set())
    elif kind in (int, float, bool):
        assert kind in parts and (parts == {kind} or rule.sentence == SIZE.sentence)
    else:
        assert parts & {kind, WRITTEN.get(kind, kind), *typing.get_args(WRITTEN.get(kind, kind))}
    assert (type(None) in typing.get_args(written)) or field.default is not None


@for_each("name", ["dtype", "quantization", "kv_cache_dtype", "load_format", "device", "block_size"])
def test_every_value_that_is_written_out_is_allowed(name):
    written = typing.get_type_hints(EngineOptions)[name]
    values = [value for each in (written, *typing.get_args(written)) for value in typing.get_args(each)]
    literals = [value for value in values if isinstance(value, (str, int))]
    assert len(literals) >= 3 or name == "device"
    for value in literals:
        EngineConfig.from_options("m", **{name: value})


def test_the_first_answers_attributes_are_written_out():
    source = inspect.getsource(Samples)
    for field in dataclasses.fields(CompletionOutput):
        assert f"        {field.name}: {field.type if isinstance(field.type, str) else ''}".rstrip() in source


@for_each("kind", [LLM, AsyncLLM])
def test_help_lists_every_option_with_its_meaning(kind):
    words = inspect.getdoc(kind)
    signature = inspect.signature(kind)
    for field in EngineConfig.__struct_fields__:
        assert field == "model" or f"    {field} = " in words, field
        assert field in signature.parameters
    assert "max_num_seqs = None: maximum sequences per step" in words
    assert signature.parameters["block_size"].default == 32


@for_each("kind", [SamplingParams, BeamSearchParams, GuidedDecodingParams])
def test_help_lists_every_field_with_its_meaning(kind):
    words = inspect.getdoc(kind)
    assert all(f"    {field}" in words for field in kind.__struct_fields__)
    assert list(inspect.signature(kind).parameters) == list(kind.__struct_fields__)
    assert "Annotated" not in str(inspect.signature(kind))


# --- each is read -----------------------------------------------------------------------------------------------------


STRUCTS = {
    SamplingParams: "protocol/parameters/sampling.py",
    BeamSearchParams: "protocol/parameters/beams.py",
    GuidedDecodingParams: "protocol/parameters/guided.py",
    EngineConfig: "protocol/options/config.py",
    HttpOptions: "frontend/http/options.py",
    DaemonSettings: "frontend/daemon/settings.py",
}
# Here they are only handed on, shown or compared; the stand-in is a worker for tests.
NO_USE = ("protocol/", "frontend/http/", "frontend/commands/", "frontend/daemon/settings.py", "worker/stand_in/")
# The front end's own options are used in no other room.
ELSEWHERE = ("protocol/", "engine/", "worker/", "kernels/")
# Other ways to write a field, into which they are folded when the struct is made (test_options.py).
FOLDED = {"frequence_penalty", "max_thinking_tokens", "bad_words_token_ids", "structural_tag", "response_format",
          "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_json_object",
          "guided_structural_tag"}  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return sources()


def unread(struct: type[msgspec.Struct], texts: dict[str, str], further: tuple[str, ...] = ()) -> set[str]:
    names = {*struct.__struct_fields__, *further} - FOLDED
    no_use = ELSEWHERE if struct in (HttpOptions, DaemonSettings) else NO_USE
    found = Readings(struct.__name__, STRUCTS[struct], texts).of(names, left_out=no_use)
    return {name for name, files in found.items() if not files}


@for_each("struct", STRUCTS)
def test_every_field_is_read_by_the_code_that_it_is_for(struct, texts):
    assert unread(struct, texts, further=("is_for_nobody",)) == {"is_for_nobody"}
