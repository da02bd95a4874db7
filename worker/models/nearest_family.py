"""What is said of an architecture that isn't supported: what kind of model it is, and which supported one is nearest.

Nearest by its name, word for word from the start; then by its config, of which the fewest keys may ask for something
that the other family hasn't got.
"""

import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Any

from ...protocol.fields.rules import shown
from .families import FAMILIES
from .family import Family

# The keys that a family doesn't support of a config that is read as its own; None if it can't be read so.
UnsupportedAs = Callable[[Family], list[str] | None]

# What an architecture is for stands at its end.
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
# Parts of a config that take something else than text.
_OTHER_INPUTS = (("vision_config", "sees pictures"), ("visual", "sees pictures"), ("audio_config", "hears sound"))
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_HEAD = re.compile(r"_?(For[A-Z]\w*|LMHeadModel|Model|ForCaus\w*)$")
_CAUSAL = "ForCausalLM"
# Published models that are no others', though another family reads their configs: they differ in what no key says.
_OTHERS = (
    *("Olmo", "FlexOlmo", "Exaone", "Phi3V", "Phimoe", "Zamba", "Zamba2", "KimiLinear", "Apertus", "Apertus1p5Text"),
    *("AriaText", "AXK1", "Beam", "BitNet", "Cwm", "DiffLlama", "Flint", "Gemma4Unified", "Helium", "HunYuanMoEV1"),
    *("JetMoe", "Mellum", "NanoChat", "Persimmon", "Bert", "BertGenerationDecoder", "Camembert", "Data2VecText"),
    *("MegatronBert", "Roberta", "RobertaPreLayerNorm", "RoFormer", "XLMRoberta", "XLMRobertaXL"),
)
_LIKE_A_NAME = 0.9  # share of letters that two spellings of one name have in common
_SHOWN = 4  # keys that one sentence names


def unknown_architecture(config: Mapping[str, Any], named: list[str], unsupported_as: UnsupportedAs) -> str:
    """Sentences, from " names the architecture" on: what to do comes before the long list."""
    text = ", ".join(shown(each).strip("'") for each in named) or "none"
    supported = ", ".join(dict.fromkeys(_body(each) for each in FAMILIES))
    advice = _advice(config, named, unsupported_as)
    return f"names the architecture {text}; it is not supported. {advice} Supported are those of {supported}."


def _advice(config: Mapping[str, Any], named: list[str], unsupported_as: UnsupportedAs) -> str:
    name = next((each for each in named if isinstance(each, str)), "")
    model_type = config.get("model_type")
    nearest = _nearest(name, model_type if isinstance(model_type, str) else "", unsupported_as)
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
    if _body(name) in _OTHERS:
        return f"The nearest is {nearest}, which computes something else: use a model of that family."
    return f"The nearest is {nearest}, which reads this config: if it is the same model, write that name."


def _names_family(model_type: Any) -> bool:
    return any(family.name == model_type for family in FAMILIES.values())


def _kind(name: str, config: Mapping[str, Any]) -> str | None:
    """What it is, unless it continues texts."""
    for pattern, kind in _KINDS:
        if re.search(pattern, name):
            return kind
    if config.get("is_encoder_decoder") is True:
        return "a model with an encoder"
    inputs = [what for key, what in _OTHER_INPUTS if config.get(key)]
    if inputs or _CONDITIONAL.search(name):
        return f"a model that {' and '.join(dict.fromkeys(inputs)) or 'takes more than text'}"
    return "a model without a head, which gives vectors and no text" if _HEADLESS.search(name) else None


def _nearest(name: str, model_type: str, unsupported_as: UnsupportedAs) -> str:
    body = _body(name)

    def distance(candidate: str) -> tuple[bool, int, int, float]:
        family = FAMILIES[candidate]
        by_name = _same_start(_words(body), _words(_body(candidate)))
        by_type = _same_start(_words(model_type), _words(family.name))
        unsupported = unsupported_as(family)
        return (
            not (_is_misspelt(name, candidate) and model_type in ("", family.name)),
            -max(by_name, by_type),
            1 << 20 if unsupported is None else len(unsupported),
            1 - _likeness(body, _body(candidate)),
        )

    return min(FAMILIES, key=distance)


def _is_misspelt(name: str, candidate: str) -> bool:
    """The same but for a few letters; another number or another word makes another family."""
    same_numbers = re.findall(r"\d+", name) == re.findall(r"\d+", candidate)
    return same_numbers and abs(len(name) - len(candidate)) <= 2 and _likeness(name, candidate) >= _LIKE_A_NAME


def _likeness(name: str, other: str) -> float:
    return SequenceMatcher(None, name.casefold(), other.casefold(), autojunk=False).ratio()


def _body(name: str) -> str:
    """Without what it is for: Qwen3Next of Qwen3NextForCausalLM."""
    return _HEAD.sub("", name[:200])


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _same_start(words: list[str], others: list[str]) -> int:
    count = 0
    for word, other in zip(words, others):
        if word != other:
            break
        count += 1
    return count
