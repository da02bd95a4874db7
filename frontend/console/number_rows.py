"""What is said of a model that gives numbers, in the table of a start and by `penstock show`: row by row, with the file
that says so."""

from ..models.pooled_model import PooledModel
from .printable import on_one_line

_MOST_NAMES = 8
_ENDS = {"softmax": "probabilities that add up to 1", "sigmoid": "a probability each", "": "as the model gives them"}
_PAIRS = {
    "tokenizer": "as the tokenizer joins two texts",
    "template": "by the roles query and document of the chat template",
    "qwen3": "in the words that Qwen3-Reranker was published with",
}


def number_rows(model: PooledModel, width: int, hidden_size: int = 0) -> list[tuple[str, str]]:
    """Rows of names and texts; `width` numbers are in a vector, of rows of `hidden_size`; 0: not known."""
    form = model.form
    each = " for each token" if form.by_token else ""
    rows = [("gives", kind_of(model, width) + each), ("pooling", _pooling(model))]
    if form.head:
        rows.append(("layers", _head(model, hidden_size)))
    if model.task == "embed":
        rows.append(("norm", "1" + _from(model, "normalizes") if model.normalizes else "any: vectors are not scaled"))
        rows += _prompts(model)
        if model.cut is not None:
            rows.append(
                (
                    "cut to",
                    f"{model.cut:,} numbers, unless a request says otherwise (config_sentence_transformers.json)",
                )
            )
        if model.similarity != "cosine":
            rows.append(("scores", f"by {model.similarity} (config_sentence_transformers.json)"))
        rows.append(("dimensions", _dimensions(model, width)))
    else:
        if len(model.labels) > 1:
            rows.append(("classes", _named(model.labels) + _from(model, "labels")))
        rows.append(("scores", _ENDS.get(model.activation, f"through {model.activation}") + _from(model, "activation")))
    if model.pairs is not None:
        rows.append(("pairs", _PAIRS[model.pairs]))
    if model.modules:
        rows.append(("modules", f"{', '.join(model.modules)} (modules.json)"))
    return [(name, on_one_line(text)) for name, text in rows]  # names in files may be a stranger's


def kind_of(model: PooledModel, width: int = 0) -> str:
    """What such a model gives, in a few words."""
    if model.task == "embed":
        return f"vectors of {width:,} numbers" if width else "vectors"
    if model.pairs is not None:
        return "scores of two texts"
    return f"{len(model.labels):,} classes" if len(model.labels) > 1 else "scores of texts"


def _pooling(model: PooledModel) -> str:
    if model.form.by_token:
        return "none" + _from(model, "form")
    if model.is_guess and model.pairs is not None:
        return f"{model.form.modes[0]}: a guess by the model's name, no file says it"
    modes = ", ".join(model.form.modes)
    if model.is_guess:
        kind = "models whose tokens see both sides" if model.form.modes == ["mean"] else "decoders"
        return f"{modes}: a guess, usual for {kind}; no file of this one says it"
    return modes + _from(model, "form")


def _head(model: PooledModel, hidden_size: int) -> str:
    """The layers behind the pooled row: what each gives."""
    width = hidden_size * len(model.form.modes)
    found = [f"{width:,}"] if width else []
    for layer in model.form.head:
        if layer.difference:
            if layer.size == len(layer.difference):
                return "the logit of its first class less that of its second"
            tokens = " and ".join(f"{token:,}" for token in layer.difference)
            return f"the logits of the tokens {tokens}"
        if layer.is_unit_length:
            found.append("length 1")
            continue
        width = layer.width_after(width)
        words = "norm" if layer.epsilon is not None else f"{width:,}" if width else "as many"
        named = ", ".join(filter(None, (layer.activation.lower(), layer.folder)))
        found.append(words + (f" ({named})" if named else ""))
    return " → ".join(found)


def _prompts(model: PooledModel) -> list[tuple[str, str]]:
    if not model.prompts:
        return [("prompts", "none")]
    usual = "none" if model.default_prompt is None else model.default_prompt
    return [
        ("prompts", f"{_named(tuple(model.prompts))}; before a text unless asked: {usual}" + _from(model, "prompts"))
    ]


def _dimensions(model: PooledModel, width: int) -> str:
    if model.dimensions is None:
        return f"{width:,}; no file says that vectors may be cut" if width else "no file says that vectors may be cut"
    lengths = ", ".join(f"{each:,}" for each in model.dimensions) or "any length"
    return f"may be cut to {lengths}" + _from(model, "dimensions")


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _from(model: PooledModel, name: str) -> str:
    source = model.sources.get(name)
    return f" ({source})" if source else ""
