"""Describes an unsupported architecture in an error: what kind of model it is, and the nearest supported family.

The nearest family is the one that transformers' class for it derives from. If transformers has none, it is the one
whose name begins alike, word for word, and then the one that supports most of the config's keys.
"""

import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Any

from ...protocol.fields.rules import shown
from .families.family import Family
from .families.table import FAMILIES
from .text_config import SEEING

# Keys that a family doesn't support if a config is read as its own; None if it can't be read as such.
UnsupportedAs = Callable[[Family], list[str] | None]

# An architecture's name ends with its purpose.
_KINDS: tuple[tuple[str, str], ...] = (
    (r"For(Sequence|Token|Image|Audio|Video)\w*Classification$", "a classifier, which gives scores and no text"),
    (r"ForQuestionAnswering$", "a finder of passages, which writes no text"),
    (r"For(MaskedLM|PreTraining|NextSentencePrediction|MultipleChoice)$", "a model that doesn't continue texts"),
    (r"(ForReward\w*|RewardModel|ForScore|ForProcessReward\w*)$", "a model of rewards, which gives scores and no text"),
    (r"For(Speech|Audio|CTC|TextToSpeech|TextToWaveform)\w*$", "a model of sound"),
    (r"For(Image|Vision|Video)\w*$", "a model of pictures"),
)
_HEADLESS = re.compile(r"(?<!LMHead)Model$")
_CONDITIONAL = re.compile(r"ForConditionalGeneration$|ForImageTextToText$|ForVision2Seq$")
# Parts of a config for inputs other than text.
_SEES, _HEARS = "sees pictures", "hears sound"
_OTHER_INPUTS = (("vision_config", _SEES), ("visual", _SEES), ("audio_config", _HEARS))
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_HEAD = re.compile(r"_?(For[A-Z]\w*|LMHeadModel|Model|ForCaus\w*)$")
_CAUSAL = "ForCausalLM"
_CAUSAL_FAMILIES = tuple(each for each in FAMILIES if each.endswith(_CAUSAL))
# For each family, related but different ones: transformers derives one's classes from the other's.
_DERIVED = {
    "Llama": "Apertus Apertus1p5Text AriaText Bamba BitNet Cwm DiffLlama Doge Dory Emu3 FalconH1 Helium HrmText Jamba "
    "JetMoe Laguna Llama4 NanoChat NemotronH Olmo Zaya",
    "Mixtral": "GraniteMoeSWA MiniMax Phimoe",
    "Qwen2": "MiMoV2Flash",
    "Qwen3": "LaraMini",
    "Qwen3Moe": "Beam Flint Mellum",
    "Qwen3_5Moe": "Qwen4Exp",
    "DeepseekV3": "AXK1 AXK2 BailingHybrid DeepseekV32 Dots3Note GlmMoeDsa KimiLinear LongcatFlash",
    "Glm": "ChatGLM",
    "Glm4MoeLite": "HYV4",
    "MiniMaxM2": "MiniMaxM3VL",
    "Gemma3": "Gemma3n",
    "Gemma4": "Gemma4Unified",
    "Granite": "GraniteSWA HyperCLOVAX",
    "GraniteMoeHybrid": "GraniteMoe GraniteMoeShared",
    "Cohere2": "Cohere2Moe CohereCompass",
    "Exaone4": "Exaone ExaoneMoe Kolibri1",
    "Lfm2": "Lfm3",
    "Olmo3": "OlmoHybrid",
    "Olmoe": "FlexOlmo",
    "Phi3": "Phi3V Phi4Multimodal",
}
PARENTS = {name: parent + _CAUSAL for parent, names in _DERIVED.items() for name in names.split()}
# Unsupported architectures whose configs some family can read: no key reveals how they differ.
_OTHERS = (
    "Persimmon Bert BertGenerationDecoder Camembert Data2VecText MegatronBert Roberta RobertaPreLayerNorm RoFormer "
    "XLMRoberta XLMRobertaXL HunYuanMoEV1 MiniCPM3 Zamba Zamba2"
)
_LIKE_A_NAME = 0.9  # share of letters that two spellings of one name have in common
_SHOWN = 4  # keys that one sentence names


def unknown_architecture(config: Mapping[str, Any], named: list[str], unsupported_as: UnsupportedAs) -> str:
    """Sentences, from " names the architecture" on: what to do comes before the long list."""
    text = ", ".join(shown(each).strip("'") for each in named) or "none"
    supported, seeing = (", ".join(dict.fromkeys(map(_body, each))) for each in (_CAUSAL_FAMILIES, SEEING))
    advice = _advice(config, named, unsupported_as)
    return (
        f"names the architecture {text}; it is not supported. {advice} Supported are those of {supported}; those that "
        f"see pictures are {seeing}."
    )


def _advice(config: Mapping[str, Any], named: list[str], unsupported_as: UnsupportedAs) -> str:
    name = next(filter(_text, named), "")
    model_type = config.get("model_type")
    fitting = [each for each in SEEING if not model_type or _letters(_body(each)) == _letters(_text(model_type))]
    if meant := next((each for each in fitting if _is_misspelt(name, each)), None):
        return f"Did you mean {meant}? Then correct the name in config.json."
    nearest = _nearest(name, config, unsupported_as)
    if senses := _senses(name, config):
        seeing = "" if senses == _HEARS else "use one that sees, of those below, or "
        return f"This is a model that {senses}: {seeing}for text alone use one of {nearest}."
    if "eagle3" in name.casefold():
        return 'These are heads that draft for a model: load that, with speculative_config={"method": "eagle3", …}.'
    if kind := _kind(name, config):
        return f"This is {kind}: use a model that continues texts, such as those of {nearest}."
    if not name:
        by = f"model_type {model_type!r}" if _names_family(model_type) else "keys"
        return f"By its {by} it is nearest to {nearest}: if it is one, add that name to config.json."
    if _is_misspelt(name, nearest) and (not model_type or model_type == FAMILIES[nearest].name):
        return f"Did you mean {nearest}? Then correct the name in config.json."
    unsupported = unsupported_as(FAMILIES[nearest])
    if unsupported is None:
        return f"The nearest is {nearest}, whose configs differ: use a model of that family."
    if unsupported:
        more = f" and {len(unsupported) - _SHOWN} more" if len(unsupported) > _SHOWN else ""
        keys = ", ".join(unsupported[:_SHOWN]) + more
        ask = "ask" if len(unsupported) > 1 else "asks"
        return f"The nearest is {nearest}, which lacks what {keys} {ask} for: use a model of that family."
    if _body(name) in (*PARENTS, *_OTHERS.split()):
        return f"The nearest is {nearest}, which computes something else: use a model of that family."
    return f"The nearest is {nearest}, which reads this config: if it is the same model, write that name."


def _names_family(model_type: Any) -> bool:
    return any(family.name == model_type for family in FAMILIES.values())


def _kind(name: str, config: Mapping[str, Any]) -> str | None:
    """The kind of model, unless it generates text."""
    for pattern, kind in _KINDS:
        if re.search(pattern, name):
            return kind
    if config.get("is_encoder_decoder") is True:
        return "a model with an encoder"
    return "a model without a head, which gives vectors and no text" if _HEADLESS.search(name) else None


def _senses(name: str, config: Mapping[str, Any]) -> str | None:
    """Inputs other than text, for a model that generates text."""
    if config.get("is_encoder_decoder") is True or any(re.search(pattern, name) for pattern, _ in _KINDS):
        return None
    inputs = dict.fromkeys(what for key, what in _OTHER_INPUTS if config.get(key))
    return " and ".join(inputs) or ("takes more than text" if _CONDITIONAL.search(name) else None)


def _nearest(name: str, config: Mapping[str, Any], unsupported_as: UnsupportedAs) -> str:
    """The nearest family; for a model with several inputs, its decoder's."""
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else config
    model_type = _text(text.get("model_type"))
    architectures = text.get("architectures")
    for each in (name, *map(_text, architectures if isinstance(architectures, list) else [])):
        if each in _CAUSAL_FAMILIES or _body(each) in PARENTS:
            return PARENTS.get(_body(each), each)
    body = _body(name)

    def distance(candidate: str) -> tuple[bool, int, int, int, float]:
        family = FAMILIES[candidate]
        by_name = _same_start(_words(body), _words(_body(candidate)))
        by_type = _same_start(_words(model_type), _words(family.name))
        unsupported = unsupported_as(family)
        return (
            not (_is_misspelt(name, candidate) and model_type in ("", family.name)),
            -max(by_name, by_type),
            1 << 20 if unsupported is None else len(unsupported),
            len(_words(_body(candidate))),
            1 - _likeness(body, _body(candidate)),
        )

    nearest = min(_CAUSAL_FAMILIES, key=distance)
    is_misspelt, same_words = not distance(nearest)[0], -distance(nearest)[1]
    return nearest if is_misspelt or same_words else "LlamaForCausalLM"  # the base of most families


def _is_misspelt(name: str, candidate: str) -> bool:
    """Whether names differ by a few letters only; another number or another word makes another family."""
    same_numbers = re.findall(r"\d+", name) == re.findall(r"\d+", candidate)
    return same_numbers and abs(len(name) - len(candidate)) <= 2 and _likeness(name, candidate) >= _LIKE_A_NAME


def _likeness(name: str, other: str) -> float:
    return SequenceMatcher(None, name.casefold(), other.casefold(), autojunk=False).ratio()


def _body(name: str) -> str:
    """The name without its purpose: Qwen3Next from Qwen3NextForCausalLM."""
    return _HEAD.sub("", name[:200])


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _same_start(words: list[str], others: list[str]) -> int:
    count = 0
    for word, other in zip(words, others):
        if word != other:
            break
        count += 1
    return count
