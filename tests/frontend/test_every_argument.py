"""No argument is ignored in silence: a walk over every public callable of `penstock` and `penstock.allspark`.

Each parameter gets an odd value of each type. Either the call fails in a sentence that names the parameter, or it comes
to something else than without the value, or it says that the value has no effect. What is left stands in `IDLE`, with
the reason. A public class or method without a row fails the walk, so whoever adds one adds its row.
"""

import inspect
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.bundled_model import FOLDER
from builders.warm_trees import LentTrees

import penstock
from penstock import LLM, AsyncLLM, BeamSearchParams, PoolingParams, SamplingParams, Tokenizer, allspark
from penstock.frontend.allspark.configuration.generation_keys import generation_of
from penstock.frontend.allspark.configuration.model_config import checked_config, engine_options
from penstock.frontend.allspark.configuration.yaml_text import as_yaml
from penstock.frontend.console import logs
from penstock.protocol.errors import PenstockError, RequestError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.foreign_options import notices

Call = Callable[..., Any]
Rows = dict[str, tuple[Call, dict[str, Any]]]  # by its name, a call and arguments that are right

ODD: dict[str, Any] = {
    "text": "nonsense", "number": -7, "fraction": 2.5, "NaN": math.nan, "texts": ["no", "no"], "dict": {"nonsense": 1},
    "bytes": b"x", "object": object(), "function": len,
}  # fmt: skip
CHAT = [{"role": "user", "content": "What is 2 + 2?"}]
PARAMS = SamplingParams(temperature=0, max_tokens=2)
BEAMS = BeamSearchParams(beam_width=2, max_tokens=2)
RECEIPT = SamplingParams(max_tokens=2, receipt=True)

# Errors, results and the names of states, which nobody makes; and what only the package's own code calls or gives.
MADE_HERE = {
    "AdapterError", "ClosedError", "ConfigError", "EngineDeadError", "ModelNotFoundError", "OutOfMemoryError",
    "PenstockError", "RequestError", "CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput", "AsCacheMode",
    "AsEngineStat", "AsStatus", "GenerateRequestStatus", "GeneratedElements", "ModelState", "RequestHandle",
    "TargetDevice", "VocabType", "ResultQueue", "ModelLoader", "MultiMediaInfo", "RoPEScaleMethod", "Ernie4_5Tokenizer",
    "ErnieBotTokenizer", "PoolingRequestOutput", "__version__",
}  # fmt: skip
OWN = {
    "Tokenizer.apply_chat_template(sees)", "Tokenizer.template(has_tools)", "Tokenizer.is_special",
    "BeamSearchParams.num_candidates", "BeamSearchParams.as_sampling", "HuggingFaceModel.record_in",
    "DashInferModel.record_in", "LLM.says_failures", "AsModelConfig(without_effect)", "PoolingParams.as_sampling",
}  # fmt: skip
# Why a value is taken as if it weren't there.
IDLE = {
    "AsModelConfig(model_path)": "the engine looks there when the model is installed",
    "AsModelRuntimeConfigBuilder.model_dir(file_name_prefix)": "the same; a folder that isn't there has no part of it",
    **dict.fromkeys(
        (f"Engine.{name}(model_name=text)" for name in ("get_wait", "get_no_wait", "get_request_status")),
        "a queue stays readable when its model is forgotten",
    ),
    "DashInferModel(config_file_path)": "config_content goes before it",
    "ASGenerationConfigBuilder(hf_gen_config=dict)": "a configuration of transformers has keys of its own calls",
    "LLM.batch(commit_seconds=fraction)": "it says what a crash may lose",
    "Tokenizer.apply_chat_template(documents=dict)": "most templates don't read it, as with transformers",
}
# What a sentence calls a parameter that it doesn't call by its name.
CALLED = {
    "outputs": ("outputs", "cannot be read"),
    "messages": ("message",), "path_or_id": ("model", "path"), "chosen": ("chat template",),
    "text_or_path": ("yaml", "there is no", "text or path"), "fields": ("setting", "configuration"),
    "target_device": ("device=",), "device_type": ("device=",), "device_id_array": ("device ids",),
    "compute_thread_in_device": ("num threads",), "span_init_size": ("span",), "engine_model_name": ("model name",),
    "max_context_length": ("engine max length",), "ids": ("token ids",), "folder": ("folder", "tokenizer.json"),
    "prompts": ("prompt",), "input_ids": ("token id",), "name": ("adapter",), "lora_path": ("adapter", "folder"),
    "path": ("adapter", "path"), "input_str_or_array": ("prompt",), "lora_name": ("adapter", "lora"),
    "request_handle": ("request",), "generate_config_builder": ("generation",), "generate_config": ("generation",),
    "as_model_config_struct": ("asmodelconfig",), "model_name": ("model",), "info": ("mm info",),
    "sampling_params": ("sampling",), "enable_logprobs": ("logprobs",), "max_new_tokens": ("max tokens",),
    "input": ("input", "cannot be read"), "replay": ("replay", "cannot be read"),
    "update_fields": ("update fields", "of a generation"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trees() -> Iterator[None]:
    trees = LentTrees(load_format="stand-in", max_model_len=256)
    with trees.in_place():
        yield
    trees.close()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was said on standard error."""
    found: list[str] = []
    monkeypatch.setattr(logs, "say", lambda text, *, quiet: found.append(text))
    return found


@pytest.mark.usefixtures("trees")
def test_every_argument_of_the_package_acts_or_is_said_to_be_idle_or_refused(said, tmp_path):
    embedder, classifier = named("Qwen3Model", tmp_path), named("Qwen3ForSequenceClassification", tmp_path)
    with LLM("pocket", quiet=True) as llm, embedder, classifier:
        walk(penstock, rows_of_penstock(llm) | rows_of_pooling(embedder, classifier, llm), said)
    own = {name for name, _ in methods(penstock, "LLM")} - {"LLM.generate_iter"}
    both = {name.replace("AsyncLLM", "LLM"): member for name, member in methods(penstock, "AsyncLLM")}
    assert own <= both.keys() | OWN, "an event loop has the same calls"
    for name, member in methods(penstock, "LLM"):
        if name in both:
            found = names_of(getattr(AsyncLLM, member))
            assert found == [each for each in names_of(getattr(LLM, member)) if each != "use_tqdm"], name


@pytest.mark.usefixtures("trees")
def test_so_does_every_argument_of_allspark(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loader = allspark.HuggingFaceModel("pocket", "pocket")
    runtime = loader.create_reference_runtime_config_builder("pocket", "CPU", [0], 8).max_length(256).build()
    with allspark.Engine() as engine:
        assert engine.install_model(runtime).is_success and engine.start_model("pocket").is_success
        walk(allspark, rows_of_allspark(engine, loader, tmp_path), said)


# --- the walk --------------------------------------------------------------------------------------------------------


def walk(package: Any, rows: Rows, said: list[str]) -> None:
    kinds = [name for name in package.__all__ if name not in MADE_HERE]
    public = {name for kind in kinds for name, _ in [(kind, ""), *methods(package, kind)] if name not in OWN}
    parameters = {name: names_of(found(package, name)) for name in public if not name.startswith("AsyncLLM.")}
    lacking = {name for name in parameters.keys() - rows.keys() if parameters[name]}
    assert not lacking, f"these have no row: {sorted(lacking)}"
    faults = [fault for name, row in rows.items() for fault in faults_of(name, *row, parameters[name], said)]
    assert not faults, f"{len(faults)} of these:\n" + "\n".join(faults)


def faults_of(name: str, call: Call, given: dict[str, Any], parameters: list[str], said: list[str]) -> Iterator[str]:
    """The odd values that a call takes as if they weren't there, or refuses without naming the parameter."""

    def effect(**odd: Any) -> Any:
        said.clear()
        return repr(call(**given | odd)), list(said)

    try:
        usual = effect()
    except (PenstockError, TypeError, ValueError, OSError) as error:
        usual = error
    for parameter in parameters:
        for kind, value in ODD.items():
            written = f"{name}({parameter}={kind})"
            if {f"{name}({parameter})", written} & (OWN | IDLE.keys()):
                continue
            try:
                if effect(**{parameter: value}) == usual:
                    yield f"{written} is ignored"
            except (PenstockError, TypeError, ValueError) as error:
                if not is_named(name, parameter, str(error)):
                    yield f"{written}: {type(error).__name__}: {error}"


def is_named(name: str, parameter: str, sentence: str) -> bool:
    """A setter's value is called by the setter's name, and a shape in one of its forms by the form."""
    if parameter in ("value", "flag", "info"):
        parameter = name.rpartition(".")[2] if parameter != "info" else "info"
    words = CALLED.get(parameter, (parameter.removeprefix("guided_").rstrip("s").replace("_", " "),))
    return any(word in sentence.replace("_", " ").lower() for word in words)


def found(package: Any, name: str) -> Any:
    for part in name.split("."):
        package = getattr(package, part)
    return package


def methods(package: Any, kind: str) -> list[tuple[str, str]]:
    """By their full names, what ends a model last."""
    names = [name for name, _ in inspect.getmembers(getattr(package, kind), callable) if not name.startswith("_")]
    names.sort(key=lambda name: name in ("stop_model", "release_model"))
    return [(f"{kind}.{name}", name) for name in names if f"{kind}.{name}" not in OWN]


def names_of(function: Call) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in inspect.signature(function).parameters.values()
            if each.name != "self" and each.kind not in kinds]  # fmt: skip


# --- rows ------------------------------------------------------------------------------------------------------------


def outputs(call: Call, said: Call = lambda output: (output.prompt, output.outputs.token_ids)) -> Call:
    """What its outputs say; a refused one is raised."""

    def outputs_of(**given: Any) -> Any:
        found = call(**given)
        if hasattr(found, "shape"):
            return found
        found = list(found)
        for output in found:
            if getattr(output, "error_code", 200) != 200:
                raise RequestError(output.error_msg)
        return [said(output) for output in found]

    return outputs_of


def status(call: Call) -> Call:
    """Its result; a status that is no success is raised."""

    def status_of(**given: Any) -> Any:
        result = call(**given)
        first = result[0] if isinstance(result, tuple) else result
        if isinstance(first, allspark.AsStatus) and not first.is_success:
            raise RequestError(first.message)
        if not isinstance(result, tuple):
            return result
        queues = result[2] if isinstance(result[2], list) else [result[2]]
        return [queue.wait() and queue.Get().ids_from_generate for queue in queues]

    return status_of


def configured(model: Any = "pocket", **options: Any) -> Any:
    return EngineConfig.from_options(model, **options), notices(options)


def in_a_folder(call: Call) -> Call:
    """Its result in a folder of its own, where a file `prompts` is."""

    def result(**given: Any) -> Any:
        with TemporaryDirectory() as folder, chdir(folder):
            Path("prompts").write_text('"a"')
            call(**given)
            return {name: Path(name).read_bytes() for name in os.listdir() if not name.endswith(".journal")}

    return result


def rows_of_penstock(llm: LLM) -> Rows:
    tokenizer = llm.get_tokenizer()
    asked = {"sampling_params": PARAMS, "use_tqdm": False}
    return {
        "LLM": (configured, {}), "AsyncLLM": (configured, {}), "SamplingParams": (SamplingParams, {}),
        "BeamSearchParams": (BeamSearchParams, {"beam_width": 2}),
        "GuidedDecodingParams": (penstock.GuidedDecodingParams, {"regex": "a"}),
        "LLM.generate": (outputs(llm.generate), {"prompts": "a", **asked}),
        "LLM.generate_iter": (outputs(llm.generate_iter), {"prompts": ["a"], **asked}),
        "LLM.chat": (outputs(llm.chat), {"messages": CHAT, **asked}),
        "LLM.stream": (outputs(llm.stream), {"prompt": "a", "sampling_params": PARAMS}),
        "LLM.beam_search": (outputs(llm.beam_search), {"prompts": "a", "params": BEAMS, "use_tqdm": False}),
        "LLM.batch": (in_a_folder(llm.batch), {"input": "prompts", "output": "answers", **asked}),
        "LLM.verify": (llm.verify, {"outputs": llm.generate("a", RECEIPT, use_tqdm=False)}),
        "LLM.apply_chat_template": (llm.apply_chat_template, {"messages": CHAT}),
        "LLM.load_lora": (llm.load_lora, {"name": "a", "path": FOLDER}),
        "LLM.unload_lora": (llm.unload_lora, {"name": "a"}),
        "Tokenizer": (lambda **given: Tokenizer(**given).eos_token_ids, {"folder": FOLDER}),
        "Tokenizer.from_pretrained": (lambda **given: len(Tokenizer.from_pretrained(**given)), {"path_or_id": FOLDER}),
        "Tokenizer.encode": (tokenizer.encode, {"text": "a"}),
        "Tokenizer.encode_batch": (tokenizer.encode_batch, {"texts": ["a"]}),
        "Tokenizer.encode_as_is": (tokenizer.encode_as_is, {"texts": ["a"]}),
        "Tokenizer.decode": (tokenizer.decode, {"ids": [1, 60]}),
        "Tokenizer.decode_token": (tokenizer.decode_token, {"token_id": 60}),
        "Tokenizer.token_to_id": (tokenizer.token_to_id, {"token": "a"}),
        "Tokenizer.template": (tokenizer.template, {}),
        "Tokenizer.apply_chat_template": (tokenizer.apply_chat_template, {"messages": CHAT}),
    }  # fmt: skip


def named(architecture: str, folder: Path) -> LLM:
    """The bundled model, as if it had another head."""
    model = folder / architecture
    shutil.copytree(FOLDER, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": [architecture]}))
    return LLM(model, quiet=True)


QUESTION = {"type": "predicate", "instructions": "It is."}


def numbers(call: Call) -> Call:
    return outputs(call, lambda output: repr(output.outputs))


def rows_of_pooling(model: LLM, classifier: LLM, decider: LLM) -> Rows:
    calls = {"embed": model.embed, "encode": model.encode, "classify": classifier.classify}
    decided = outputs(decider.decide, lambda decision: repr(decision.answers))
    return {
        "PoolingParams": (PoolingParams, {}),
        **{f"LLM.{name}": (numbers(call), {"prompts": "a", "use_tqdm": False}) for name, call in calls.items()},
        "LLM.decide": (decided, {"input": "a", "questions": [QUESTION], "use_tqdm": False}),
        "LLM.score": (numbers(model.score), {"queries": "a", "documents": ["b", "c"], "use_tqdm": False}),
    }


def rows_of_allspark(engine: allspark.Engine, loader: allspark.HuggingFaceModel, folder: Path) -> Rows:
    runtime = loader.create_reference_runtime_config_builder("pocket", "CPU", [0], max_batch=8).build()
    content = as_yaml({"model": {"name": "a"}, "runtime_config": runtime.to_dict(), "generation_config": {"top_k": 3}})
    handle, queue = engine.start_request_ids("pocket", loader, [1, 60], {"max_new_tokens": 2})[1:]
    beside = folder / "a file"
    beside.touch()
    right = {
        "as_model_config_struct": runtime, "model_name": "pocket", "lora_name": "a", "request_handle": handle,
        "model": loader, "input_ids": [1, 60], "inputs": {"input_ids": [1, 60]}, "input_str_or_array": "a",
        "generate_config_builder": {"max_new_tokens": 2}, "result_queue": queue, "engine": engine, "max_batch": 2,
        "engine_model_name": "a", "device_type": "CPU", "device_ids": [0], "target_device": "CPU", "model_dir": "a",
        "file_name_prefix": "", "model_file_name": "pocket", "enable": False, "model_output_dir": beside / "nowhere",
        "method": allspark.RoPEScaleMethod.YaRN, "parameter_dict": {"factor": 2.0},
    }  # fmt: skip

    def needed(kind: str, method: str) -> dict[str, Any]:
        own = {"HuggingFaceModel": ("enable", "model_output_dir"), "DashInferModel": ("enable",)}.get(kind, ())
        own = () if method == "serialize" else own  # in memory
        signature = inspect.signature(getattr(getattr(allspark, kind), method))
        return {name: right[name] for name, each in signature.parameters.items()
                if name in right and (each.default is each.empty or name in own)}  # fmt: skip

    def converted(**given: Any) -> allspark.DashInferModel:
        return allspark.DashInferModel(**{"pretrain_model_name_or_path": FOLDER, "config_content": content} | given)

    def recorded(kind: str, method: str) -> Call:
        """What a loader knows after the call."""

        def known(**given: Any) -> Any:
            is_in_memory = method == "serialize"
            new = converted() if kind == "DashInferModel" else allspark.HuggingFaceModel("pocket", "p", is_in_memory)
            result = getattr(new, method)(**given)
            builder = result if hasattr(result, "build") else result.create_reference_runtime_config_builder(
                "a", "CPU", [0], 2)  # fmt: skip
            return builder.build()

        return known

    def built(kind: str, method: str) -> Call:
        def result(**given: Any) -> Any:
            builder = getattr(getattr(allspark, kind)(), method)(**given)
            return generation_of(builder) if kind == "ASGenerationConfigBuilder" else builder.build()

        return result

    def options_of(**given: Any) -> Any:
        return engine_options(checked_config(allspark.AsModelConfig(**{"compute_unit": "CPU:0"} | given)), 99)

    rows: Rows = {
        "ASGenerationConfigBuilder": (lambda **given: generation_of(allspark.ASGenerationConfigBuilder(**given)), {}),
        "AsModelConfig": (options_of, {}),
        "HuggingFaceModel": (
            lambda **given: vars(allspark.HuggingFaceModel(**given)),
            {"pretrain_model_name_or_path": "pocket", "pretrain_model_name": "a"},
        ),
        "DashInferModel": (lambda **given: vars(converted(**given)), {}),
    }
    makers: dict[str, Callable[[str, str], Call]] = {
        "Engine": lambda kind, method: status(getattr(engine, method)),
        "ASGenerationConfigBuilder": built, "AsModelRuntimeConfigBuilder": built, "HuggingFaceModel": recorded,
        "DashInferModel": recorded,
    }  # fmt: skip
    for kind, make in makers.items():
        for name, method in methods(allspark, kind):
            if names_of(getattr(getattr(allspark, kind), method)):
                rows[name] = make(kind, method), needed(kind, method)
    return rows
