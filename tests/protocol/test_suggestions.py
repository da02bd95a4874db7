"""A mistake is refused in our own words: a wrong value with what is wanted, a wrong name with the one that is meant."""

import ast
import copy
import pickle

import msgspec
import pytest
from builders.cases import for_each
from builders.readings import sources
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import LLM, AsyncLLM, BeamSearchParams, GuidedDecodingParams, PoolingParams, RequestError, SamplingParams
from penstock.frontend import cli
from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.requests import decoding
from penstock.frontend.http.requests.decoding import decoded
from penstock.frontend.http.schemas.chat import ChatRequest
from penstock.frontend.http.schemas.completions import CompletionRequest
from penstock.frontend.http.schemas.files import NewBatch
from penstock.frontend.http.schemas.responses import ResponsesRequest
from penstock.frontend.text import chat
from penstock.protocol.errors import ConfigError
from penstock.protocol.fields import other_names
from penstock.protocol.fields.suggestion import nearest, suggestion
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes import faults

QUESTION = {"messages": [{"role": "user", "content": "one"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def refusal(body: object, kind: type[msgspec.Struct] = ChatRequest) -> tuple[str, str | None]:
    with pytest.raises(ApiError) as refused:
        decoded(msgspec.json.encode(body), kind)
    return str(refused.value), refused.value.param


@for_each("field, value, sentence", [
    ("max_tokens", "5", "max_tokens='5': must be a whole number, 1 or more."),
    ("max_tokens", 0, "max_tokens=0: must be a whole number, 1 or more."),
    ("max_tokens", 2**31, "max_tokens=2147483648: must be a whole number from 1 to 2147483647."),
    ("temperature", True, "temperature=true: must be a number from 0 to 1000."),
    ("top_p", 2, "top_p=2: must be a number from 0 to 1."),
    ("stream", "true", "stream='true': must be true or false."),
    ("stop", {}, "stop must be text or a list, not an object."),
    ("stop", ["a", None], "stop[1]=null: must be text."),
    ("stop_token_ids", [1] * 1025, "stop_token_ids must be a list of at most 1024 items."),
    ("logit_bias", {"5": "x"}, "A value of logit_bias must be a number from -100 to 100, not text."),
    ("messages", [], "messages must be a list of 1 or more items."),
    ("messages", ["one"], "messages[0]='one': must be an object."),
    ("messages", [{}], "messages[0] needs role, which must be text of 1 to 64 characters."),
    ("messages", [{"role": "user", "content": 5}], "messages[0].content=5: must be text or a list."),
    ("tool_choice", 5, "tool_choice=5: must be an object or one of auto, none, required."),
    ("tool_choice", "aut", "tool_choice='aut': must be one of auto, none, required. Did you mean auto?"),
    ("temprature", 1, "The body has no field 'temprature'. Did you mean temperature?"),
    ("TEMPERATURE", 1, "The body has no field 'TEMPERATURE'. Did you mean temperature?"),
    ("stream_options", {"include_usge": 1}, "stream_options has no field 'include_usge'. Did you mean include_usage?"),
    ("nonsense", 1, "The body has no field 'nonsense'."),
])  # fmt: skip
def test_what_is_wanted_is_said_with_the_value(field, value, sentence):
    told, param = refusal({**QUESTION, field: value})
    assert told == sentence and param.startswith(field)


def test_so_is_what_is_no_object_or_lacks_a_field_and_a_long_body_is_refused_without_its_value():
    assert refusal([]) == ("The body must be an object, not a list.", None)
    batch = {"metadata": {str(n): "" for n in range(17)}}
    assert refusal(batch, NewBatch) == ("metadata must be an object of at most 16 entries.", "metadata")
    long = "A key of metadata must be text of at most 64 characters."
    assert refusal({"metadata": {"a" * 65: ""}}, NewBatch) == (long, "metadata")
    assert refusal({}, CompletionRequest) == ("The body needs prompt, which must be text or a list.", "prompt")
    told, _ = refusal({"max_tokens": "5", "messages": [{"role": "user", "content": "x" * decoding.MOST_SHOWN_BYTES}]})
    assert told == "max_tokens must be a whole number, 1 or more, not text."


@settings(max_examples=40)
@given(st.sampled_from([ChatRequest, CompletionRequest, ResponsesRequest, NewBatch]), st.data(), JSON)
def test_no_refusal_is_in_the_decoders_words(kind, data, value):
    name = data.draw(st.sampled_from(kind.__struct_fields__))
    body = {**QUESTION, name: value} if kind is ChatRequest else {name: value}
    told = ""
    try:
        decoded(msgspec.json.encode(body), kind)
    except ApiError as error:
        told = str(error)
    assert "Expected" not in told and "got " not in told, told


# --- names that nothing has ------------------------------------------------------------------------------------------


FIELDS = SamplingParams.__struct_fields__


@for_each("names", [FIELDS, EngineConfig.__struct_fields__])
def test_a_letter_more_less_or_other_is_seen_through(names):
    for name in names:
        wrong = {name[:2] + name[3:], name[:2] + "x" + name[2:], name[:1] + "x" + name[2:], name.upper()} - set(names)
        assert len(name) < 5 or all(nearest(word, names) in names for word in wrong), name
        assert nearest(name.replace("_", "-"), names) == name
    meant = {"temp": "temperature", "stop_token": "stop_token_ids", "max-tokens": "max_tokens", "Seed": "seed"}
    assert {word: nearest(word, FIELDS) for word in meant} == meant


@for_each("word", ["", "zzzzzz", "n" * 10**6, 3, None, b"stop", ["stop"], "🦙", "\0"])
def test_what_is_near_to_nothing_gets_no_suggestion(word):
    assert suggestion(word, FIELDS) == ""


@for_each("kind, word, sentence", [
    (SamplingParams, "num_predict", "Did you mean max_tokens?"),
    (SamplingParams, "topPSampling", "Did you mean top_p?"),
    (SamplingParams, "num_ctx", "The context's length is set where the model is loaded: max_model_len."),
    (EngineConfig, "num_ctx", "Did you mean max_model_len?"),
    (EngineConfig, "max_context", "Did you mean max_model_len?"),
    (EngineConfig, "torch_dtype", "Did you mean dtype?"),
    (EngineConfig, "cache_dir", "Where downloads lie is set by HF_HUB_CACHE in the environment."),
    (ChatRequest, "max_completion_tokns", "Did you mean max_completion_tokens?"),
    (SamplingParams, "functions", "Functions are given as `tools`."),
    (SamplingParams, "use_beam_search", "Beams are searched by LLM.beam_search."),
    (ResponsesRequest, "max_tokens", "Did you mean max_output_tokens?"),
])  # fmt: skip
def test_a_name_of_another_engine_is_told_with_ours(kind, word, sentence):
    assert suggestion(word, kind.__struct_fields__) == f" {sentence}"


def test_each_name_of_another_engine_leads_to_one_that_is_there():
    kinds = (SamplingParams, BeamSearchParams, EngineConfig, ChatRequest, ResponsesRequest)
    known = {name for kind in kinds for name in kind.__struct_fields__} | set(chat.KNOWN_ROLES)
    known.add("cuda")  # a value of `device`
    assert {name for names in other_names.NAMES.values() for name in names} <= known
    written = [*other_names.NAMES, *other_names.ADVICE, *cli.ADVICE]
    assert all(word == word.casefold().replace("-", "_") for word in written if word != "run-batch")
    assert not set(cli.ADVICE) & set(cli.COMMANDS)


@given(st.text(max_size=90), st.lists(st.text(max_size=20), max_size=5))
def test_any_text_gets_one_of_the_names_or_none(word, names):
    assert nearest(word, names) in [None, *names]


# --- where people write names -----------------------------------------------------------------------------------------


@for_each("kind, wrong, right", [
    (SamplingParams, "temprature", "temperature"),
    (BeamSearchParams, "beam_with", "beam_width"),
    (GuidedDecodingParams, "regx", "regex"),
    (lambda **options: EngineConfig.from_options("m", **options), "max_modellen", "max_model_len"),
])  # fmt: skip
def test_a_field_that_is_not_there_is_refused_with_the_nearest(kind, wrong, right):
    with pytest.raises(TypeError, match=f"no (field|option) '{wrong}'. Did you mean {right}?"):
        kind(**{wrong: 1})


def test_so_is_an_attribute_that_is_read_or_set_a_shape_as_a_dict_and_a_parameter_among_options():
    params = SamplingParams()
    with pytest.raises(AttributeError, match="no field 'temprature'. Did you mean temperature?"):
        _ = params.temprature
    with pytest.raises(AttributeError, match="no field 'max_token'. Did you mean max_tokens?"):
        params.max_token = 3
    params.max_tokens = 3
    assert params.max_tokens == 3 and not hasattr(params, "max_token")
    with pytest.raises(RequestError, match="no field 'regx'. Did you mean regex?"):
        SamplingParams(guided_decoding={"regx": "a+"})
    with pytest.raises(TypeError, match="no option 'temperature'. It is a field of SamplingParams"):
        EngineConfig.from_options("m", temperature=0)


def test_params_are_still_copied_pickled_replaced_and_sent():
    params = SamplingParams(temperature=0, stop=["x"], logit_bias={5: 1.0})
    copies = [copy.copy(params), copy.deepcopy(params), pickle.loads(pickle.dumps(params))]
    assert copies == [params] * 3
    assert msgspec.structs.replace(params, n=2).n == 2
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


@for_each("name, value, right", [
    ("dtype", "flot16", "float16"), ("quantization", "int 8", "int8"), ("kv_cache_dtype", "int4", "uint4"),
    ("device", "cud", "cuda"), ("device", "gpu", "cuda"), ("load_format", "dumy", "dummy"),
    ("connect", "autoo", "auto"),
])  # fmt: skip
def test_a_value_that_is_not_allowed_names_the_nearest_that_is(name, value, right):
    with pytest.raises(ConfigError, match=f"Did you mean {right}?"):
        EngineConfig.from_options("m", **{name: value})


@for_each("surface", [penstock.LLM, penstock.AsyncLLM])
@for_each("call, name, sentence", [
    ("chat", "max_tokens", "It is a field of SamplingParams: chat(…, SamplingParams(max_tokens=…))."),
    ("generate", "num_predict", "It is a field of SamplingParams: generate(…, SamplingParams(max_tokens=…))."),
    ("stream", "temprature", "It is a field of SamplingParams: stream(…, SamplingParams(temperature=…))."),
    ("beam_search", "width", "It is a field of BeamSearchParams: beam_search(…, BeamSearchParams(beam_width=…))."),
    ("chat", "mm_processor_kwargs", "It is an option of the model: {surface}(…, mm_processor_kwargs=…)."),
    ("generate", "max_model_len", "It is an option of the model: {surface}(…, max_model_len=…)."),
    ("chat", "chat_template_kwarg", "Did you mean chat_template_kwargs?"),
    ("generate", "zzzzzz", ""),
])  # fmt: skip
def test_an_argument_that_a_call_does_not_have_is_told_where_it_belongs(surface, call, name, sentence):
    with pytest.raises(TypeError) as refused:
        getattr(object.__new__(surface), call)([], **{name: 3})  # without a model, which it never reaches
    said = sentence.format(surface=surface.__name__)
    assert str(refused.value) == f"{surface.__name__}.{call}() has no argument '{name}'. {said}".strip()


@for_each("call, name, words", [
    *((call, "pooling_task", "embed, classify or score") for call in ("embed", "encode", "classify")),
    ("embed", "tokenization_kwargs", "PoolingParams(truncate_prompt_tokens=…)"),
    ("encode", "normalize_embeddings", "PoolingParams(normalize=…)"),
    ("classify", "as_numpy", "outputs.data is an array"), ("embed", "prompt", "PoolingParams(instruction=…)"),
])  # fmt: skip
def test_an_argument_of_another_engines_call_names_what_to_use_here(call, name, words):
    for surface in (LLM, AsyncLLM):
        with pytest.raises(TypeError, match="has no argument") as refused:
            getattr(object.__new__(surface), call)([], **{name: 3})
        assert words in str(refused.value) and "Did you mean" not in str(refused.value)
    with pytest.raises(TypeError, match="'prompt': .*instruction"):
        PoolingParams(prompt="query: ")


@for_each("value", ["32k", " 32K "])
def test_a_number_in_thousands_is_written_out_where_one_would_do(value):
    for make in (lambda: EngineConfig.from_options("m", max_model_len=value), lambda: SamplingParams(max_tokens=value)):
        with pytest.raises((ConfigError, RequestError), match="Written out, 32[kK] is 32768 \\(or 32000\\)."):
            make()
    with pytest.raises(RequestError, match="must be a number from 0 to 1.$"):
        SamplingParams(top_p=value)


def test_a_number_beyond_the_largest_is_told_which_that_is():
    with pytest.raises(RequestError, match="must be a whole number, 0 or more. The largest is 2147483647.$"):
        SamplingParams(min_tokens=2**31)


# --- fault points -----------------------------------------------------------------------------------------------------


def test_the_points_that_can_be_named_are_those_that_the_code_passes():
    texts = (text for text in sources().values() if "faults import" in text)
    calls = (node for text in texts for node in ast.walk(ast.parse(text)))
    passed = set()
    for call in calls:
        match call:
            case ast.Call(func=ast.Name(id="point" | "passing"), args=[ast.Constant(value=name), *_]):
                passed.add(name)
    assert passed | {"worker.start", "engine.start", "detokenizer.start"} == set(faults.POINTS)


@for_each("text, sentence", [
    ("worker.stp=die", "'worker.stp'.* Did you mean worker.step?"),
    ("worker.step=dly", "'dly'.* Did you mean delay?"),
    ("worker.step=delay:soon", "must be POINT=ACTION"),
])  # fmt: skip
def test_a_fault_that_nobody_could_meet_is_refused(text, sentence, monkeypatch):
    monkeypatch.setattr(faults, "_text", text)
    with pytest.raises(ConfigError, match=sentence):
        faults.point("worker.step")
