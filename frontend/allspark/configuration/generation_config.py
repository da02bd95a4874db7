"""`ASGenerationConfigBuilder`: how a request is to be answered, key by key.

It collects what was said; whether the values can work is checked when a request is started with it
(`generation_keys.py`), and answered by the request's status.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.parameters.sampling import DRAW

# The keys that are read from transformers' generation configuration; the others have no use here.
_FROM_TRANSFORMERS = (
    *DRAW, "do_sample", "repetition_penalty", "length_penalty", "min_length", "no_repeat_ngram_size", "eos_token_id",
    "num_beams", "num_return_sequences", "max_new_tokens",
)  # fmt: skip


def _setter(key: str, meaning: str) -> Callable[..., Any]:
    def set_key(self: "ASGenerationConfigBuilder", value: Any) -> "ASGenerationConfigBuilder":
        self.dict_store[key] = value
        return self

    set_key.__name__ = set_key.__qualname__ = key
    set_key.__doc__ = meaning
    return set_key


class ASGenerationConfigBuilder:
    """Each method sets the key of its name and returns the builder.

    Begins with `hf_gen_config`, a dict or an object of transformers, if there is one. Without a `seed` the engine
    counts seeds, so that a run repeats. An `eos_token_id` of 0 stands for `hf_gen_config`'s, or the model's own.
    """

    def __init__(self, hf_gen_config: Any = None, seed: int | None = None, eos_token_id: int = 0) -> None:
        self.dict_store: dict[str, Any] = {"do_sample": True}
        # Keys that nobody chose for this request: if they can have no effect, they are not refused.
        self.model_defaults: dict[str, Any] = {}
        if hf_gen_config is not None:
            self.model_defaults = _from_transformers(hf_gen_config)
            self.dict_store |= self.model_defaults
        if hf_gen_config is None or eos_token_id != 0:
            self.dict_store["eos_token_id"] = eos_token_id
        if seed is not None:
            self.dict_store["seed"] = seed

    def do_sample(self, flag: bool = True) -> Self:
        """False: take the most likely token, always."""
        return self.update({"do_sample": flag})

    def early_stopping(self, flag: bool = True) -> Self:
        """False: go on after the end token."""
        return self.update({"early_stopping": flag})

    def log_probs(self, enable_logprobs: bool = True, top_logprobs: int = 0) -> Self:
        """Log-probabilities of the tokens that are chosen, and of so many of the most likely ones."""
        return self.update({"logprobs": enable_logprobs, "top_logprobs": top_logprobs})

    def with_mm_info(self, info: Any) -> Self:
        """Refused when a request is started."""
        return self.update({"mm_info": info})

    temperature = _setter("temperature", "0 takes the most likely token.")
    top_k = _setter("top_k", "Keep that many most likely tokens; 0 keeps all.")
    top_p = _setter("top_p", "Keep the most likely tokens up to this share of probability.")
    max_length = _setter("max_length", "Prompt and output tokens together, at most.")
    max_new_tokens = _setter("max_new_tokens", "Output tokens alone, at most.")
    min_p = _setter("min_p", "Drop tokens below this share of the likeliest one's probability.")
    min_length = _setter("min_length", "No end before prompt and output have that many tokens.")
    stop_words_ids = _setter("stop_words_ids", "Sequences of token ids that end the answer.")
    bad_words_ids = _setter("bad_words_ids", "Sequences of token ids that must not appear.")
    eos_token_id = _setter("eos_token_id", "The end token, or a list of them; 0: the model's own.")
    no_repeat_ngram_size = _setter("no_repeat_ngram_size", "No run of that many tokens comes twice.")
    repetition_penalty = _setter("repetition_penalty", "More than 1 discourages tokens of prompt and answer.")
    presence_penalty = _setter("presence_penalty", "-2..2, once for each token already generated.")
    frequency_penalty = _setter("frequency_penalty", "-2..2, for each time that a token was generated.")
    suppress_repetition_in_generation = _setter(
        "suppress_repetition_in_generation", "`repetition_penalty` counts the answer alone."
    )
    length_penalty = _setter("length_penalty", "Of beams: scores are log-probability / length ** length_penalty.")
    num_beams = _setter("num_beams", "More than 1 searches for the likeliest answer with so many beams.")
    num_return_sequences = _setter("num_return_sequences", "Only 1: a request has one answer.")
    seed = _setter("seed", "Makes a sampled answer repeat.")
    logprobs = _setter("logprobs", "Whether log-probabilities are wanted.")
    top_logprobs = _setter("top_logprobs", "Of how many of the most likely tokens.")
    lora_name = _setter("lora_name", "The adapter to use.")
    mm_info = _setter("mm_info", "Refused when a request is started.")
    response_format = _setter("response_format", "The shape of the answer, as OpenAI's clients write it.")
    vocab_type = _setter("vocab_type", "Without effect: the model's tokenizer is known.")
    uuid = _setter("uuid", "The request's name.")

    def update(self, update_fields: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Self:
        """Set several keys."""
        try:
            self.dict_store.update(update_fields)
        except (TypeError, ValueError):
            raise RequestError(f"update_fields={shown(update_fields)}: must be a dict of keys and values.") from None
        return self

    def build(self) -> dict[str, Any]:
        """The configuration, a dict of its own."""
        return dict(self.dict_store)


def _from_transformers(config: Any) -> dict[str, Any]:
    """Read the keys of a dict, or of an object that makes one of itself."""
    values = config if isinstance(config, Mapping) else getattr(config, "to_dict", lambda: None)()
    if not isinstance(values, Mapping):
        raise TypeError(f"hf_gen_config={shown(config)}: must be a dict, or transformers' GenerationConfig.")
    return {key: values[key] for key in _FROM_TRANSFORMERS if values.get(key) is not None}
