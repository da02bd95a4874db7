"""`Generate`: a model as a class for `ray.data.Dataset.map_batches`.

    answers = dataset.map_batches(
        Generate,
        fn_constructor_kwargs={"model": "pocket", "sampling_params": {"max_tokens": 64}},
        compute=ray.data.ActorPoolStrategy(size=2),
    )

A row that can't be answered fails alone, in its own columns. A row's seed depends on its id and the seed of the whole,
never on its batch or its actor, so a dataset has the same answers on any cluster.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import numpy

from ..frontend.async_llm import AsyncLLM
from ..frontend.jobs.run import seed_of
from ..protocol.errors import ConfigError, RequestError
from ..protocol.outputs import RequestOutput
from ..protocol.parameters.sampling import SamplingParams

Batch = dict[str, numpy.ndarray[Any, Any]]

# The columns that rows get. Texts of several samples (`n`) are a list.
_NEW = ("generated_text", "finish_reason", "num_prompt_tokens", "num_output_tokens", "error_code", "error_msg")


class Generate:
    """Adds the columns `generated_text`, `finish_reason`, `num_prompt_tokens`, `num_output_tokens`, `error_code` (200)
    and `error_msg` (empty) to batches."""

    def __init__(
        self,
        model: str,
        sampling_params: SamplingParams | Mapping[str, Any] | None = None,
        *,
        prompt_column: str = "prompt",
        messages_column: str = "messages",
        id_column: str = "id",
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Rows have a conversation in `messages_column`, or a text or token ids in `prompt_column`. Without
        `id_column` a row's prompt is its id. All other options are those of `LLM`."""
        self._prompts, self._messages, self._ids, self._seed = prompt_column, messages_column, id_column, seed
        self._given = {} if sampling_params is None else sampling_params
        _check(self._given)  # before a model is loaded
        self._llm = AsyncLLM(model, **{"quiet": True, **options})

    async def __call__(self, batch: Batch) -> AsyncIterator[Batch]:
        """Answer the rows of a batch; several calls at once share the model's steps."""
        is_chat = self._messages in batch
        name = self._messages if is_chat else self._prompts
        if name not in batch:
            raise ConfigError(
                f"The dataset has neither a column {self._messages!r} nor {self._prompts!r}; it has "
                f"{', '.join(batch)}. Name one: messages_column= or prompt_column=."
            )
        if taken := [column for column in _NEW if column in batch]:
            raise ConfigError(f"The dataset has a column {taken[0]!r} already; drop or rename it.")
        prompts = [_plain(value) for value in batch[name]]
        ids = map(_plain, batch[self._ids]) if self._ids in batch else map(_digest, prompts)
        params = await self._params()
        seeded = [self._seeded(params, key) for key in ids]
        outputs = await (self._llm.chat if is_chat else self._llm.generate)(prompts, seeded)
        yield batch | _columns(outputs)

    async def _params(self) -> SamplingParams:
        if isinstance(self._given, SamplingParams):
            return self._given
        return msgspec.structs.replace(await self._llm.get_default_sampling_params(), **self._given)

    def _seeded(self, params: SamplingParams, key: Any) -> SamplingParams:
        if params.seed is not None:
            return params
        return msgspec.structs.replace(params, seed=seed_of(self._seed, 0, str(key)))

    def __del__(self) -> None:
        # Its finalizer ends the processes; a loop to await `close` may be gone by now.
        self.__dict__.pop("_llm", None)


def _check(given: SamplingParams | Mapping[str, Any]) -> None:
    if not isinstance(given, SamplingParams):
        try:
            SamplingParams(**given)
        except (TypeError, RequestError) as error:
            raise ConfigError(f"sampling_params: {error}") from error


def _columns(outputs: list[RequestOutput]) -> Batch:
    """The new columns; a failed row has empty texts, so that a column is of one type in all blocks."""
    texts = [[sample.text for sample in output.outputs] for output in outputs]
    is_single = all(len(each) <= 1 for each in texts)
    return {
        "generated_text": _objects(["".join(each) for each in texts] if is_single else texts),
        "finish_reason": _objects(
            [(output.outputs[0].finish_reason or "") if output.outputs else "error" for output in outputs]
        ),
        "num_prompt_tokens": numpy.array([len(output.prompt_token_ids) for output in outputs], numpy.int64),
        "num_output_tokens": numpy.array(
            [sum(len(sample.token_ids) for sample in output.outputs) for output in outputs], numpy.int64
        ),
        "error_code": numpy.array([output.error_code for output in outputs], numpy.int64),
        "error_msg": _objects([output.error_msg or "" for output in outputs]),
    }


def _objects(values: list[Any]) -> "numpy.ndarray[Any, Any]":
    column = numpy.empty(len(values), object)
    column[:] = values
    return column


def _plain(value: Any) -> Any:
    """A value without numpy's types, into which Ray Data has put lists and numbers."""
    if isinstance(value, numpy.ndarray | numpy.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):  # of structs, the fields that a row doesn't have are None
        return {key: _plain(part) for key, part in value.items() if part is not None}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _digest(prompt: Any) -> str:
    return hashlib.blake2b(json.dumps(prompt, sort_keys=True, default=repr).encode(), digest_size=16).hexdigest()
