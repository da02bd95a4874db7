"""Finds what an earlier run answered to a prompt: the tokens that this run is expected to say.

They are drafts: each is checked as it is computed, so a wrong guess costs a little time, and never changes an answer.
A prompt's answer is that of the same `custom_id` or `id`, else that of the same prompt, else the one in the same line
of a file with as many lines.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import ConfigError, PenstockError
from ...protocol.wire import column
from ..jobs.journal.records import Bits
from ..requests.plain_types import plain
from ..requests.prompts import ParsedPrompt
from .answers import EarlierAnswer, Spoken, key_of_name, keys_of_prompt
from .earlier_run import opened
from .index import AnswerIndex

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer

_GIVE_NAMES = "Give each line the custom_id or id that it had"
_TRIED = 64  # answers, and samples of each, that are compared with the vocabulary before anything is computed


class AnswerFinder:
    """Open it before the model is loaded, and call `begin` with the model before the first prompt."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file; raises if it has no answers."""
        self.name = os.fspath(path)
        self.num_lines = self.num_found = 0
        self._rows = Bits()  # whose answers were looked for
        self._has_names = self._has_prompts = self._has_receipts = False
        self._vocabulary: _Vocabulary | None = None  # until `begin`; without one nothing is expected
        self._max_model_len = 0
        self._run = opened(Path(os.path.expanduser(path)))
        self._index = AnswerIndex()
        self._num_others = 0  # lines without an answer
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        try:
            for row, offset, answer in self._run.answers():
                if answer is None:
                    self._num_others += 1
                    continue
                keys = answer.keys
                self._has_names |= answer.name is not None
                self._has_prompts |= len(keys) > (answer.name is not None)
                self._has_receipts |= answer.has_prompt_in_receipt
                self._index.add(row, offset, keys)
        except PenstockError:  # a damaged end; what stands before it can be used
            if not self._index.num_answers:
                raise
        if not self._index.num_answers:
            raise ConfigError(
                f"{self.name} has no answers that could be replayed. Give the output of `penstock batch` or its "
                "journal, or lines of `penstock generate --format jsonl --output`. A line of your own has "
                '"outputs": [{"token_ids": […]}] or [{"text": "…"}], and is found by its "prompt", "prompt_token_ids", '
                '"messages" or "id".'
            )
        self._index.sort()

    def begin(self, vocab_size: int, max_model_len: int, tokenizer: "Callable[[], Tokenizer]") -> None:
        """Take the vocabulary of the loaded model; raises if the answers are of a model with another one."""
        self._vocabulary = _Vocabulary(vocab_size, tokenizer)
        self._max_model_len = max_model_len
        for offset in islice(self._index.offsets(), _TRIED):
            answer = self._at(offset)
            for said in [] if answer is None else answer.samples(_TRIED, max_model_len):
                tokens = [token for token in said if isinstance(token, int)]
                if wrong := [token for token in tokens if not 0 <= token < vocab_size]:
                    raise ConfigError(
                        f"{self.name} has an answer with token id {wrong[0]}, and this model's vocabulary is 0 to "
                        f"{vocab_size - 1}: it was answered by a model with another tokenizer."
                    )

    def prepare(self, prompts: Sequence[ParsedPrompt]) -> None:
        """Give each prompt its expected answer, unless it has one."""
        for prompt in prompts:
            prompt.expected = prompt.expected or self.expected(prompt)

    def expected(
        self, prompt: ParsedPrompt, name: str | None = None, row: int | None = None, num_rows: int | None = None
    ) -> list[bytes]:
        """Return what each sample is expected to say; nothing if the earlier run has no answer to this prompt."""
        if prompt.refusal is not None or (vocabulary := self._vocabulary) is None:
            return []
        found = next(self._found(prompt, name, row, num_rows), None)
        most = min(prompt.params.max_tokens or self._max_model_len, self._max_model_len)
        samples = [] if found is None else found.samples(prompt.params.n, most)
        tokens = [vocabulary.packed(said)[: 4 * most] for said in samples]
        if row is not None and not self._rows.put(row, True):
            self.num_lines += 1
            self.num_found += any(tokens)
        return tokens if any(tokens) else []

    def _found(
        self, prompt: ParsedPrompt, name: str | None, row: int | None, num_rows: int | None
    ) -> Iterator[EarlierAnswer]:
        for key in self._keys(prompt, name):
            for offset in self._index.find(key, row):
                if (answer := self._at(offset)) is not None and key in answer.keys:
                    yield answer
        may_pair = num_rows == self._run.num_rows and (name is None or not self._has_names)
        same_row = self._index.offset(row) if row is not None and may_pair else None
        if same_row is not None and (answer := self._at(same_row)) is not None:
            yield answer

    def _keys(self, prompt: ParsedPrompt, name: str | None) -> Iterator[int]:
        if name is not None:
            yield key_of_name(name)
        yield from keys_of_prompt(prompt.text, prompt.token_ids, _plain_messages(prompt))
        if self._has_receipts and self._vocabulary is not None and prompt.text is not None:
            yield from keys_of_prompt(token_ids=self._vocabulary.ids_of(prompt.text, adds=not prompt.is_chat))

    def _at(self, offset: int) -> EarlierAnswer | None:
        """Read the answer at an offset; None if the file has been changed or closed meanwhile."""
        try:
            return self._run.at(offset)
        except (OSError, ValueError, PenstockError, msgspec.MsgspecError):
            return None

    def summary(self) -> str:
        """Say how many lines of a job had an earlier answer; if few had, also why."""
        others = f", where {self._num_others:,} have no answer" if self._num_others else ""
        reason = f": {self.reason()}" if 2 * self.num_found < self.num_lines else ""
        return f"replay: {self.num_found:,} of {self.num_lines:,} lines found in {self.name}{others}{reason}"

    def reason(self) -> str:
        """Say why lines aren't found, and what would help."""
        if self._has_prompts:
            prompts = "prompts (of a receipt, the system prompt counts)" if self._has_receipts else "prompts"
            return f"it has other {prompts} and other names. {_GIVE_NAMES}"
        if self._has_names:
            return f"it has other names, and {self._run.without_prompts}. {_GIVE_NAMES}"
        return (
            "it has neither names nor prompts, so its lines are found by their places alone, and only by a job of as "
            f"many ({self._run.num_rows:,})"
        )

    def close(self) -> None:
        self._run.close()


class _Vocabulary:
    """The tokens of the model that is to answer."""

    def __init__(self, size: int, tokenizer: "Callable[[], Tokenizer]") -> None:
        self.size = size
        # Called only for an answer without tokens: a client of the daemon reads its tokenizer then.
        self._tokenizer = tokenizer

    def packed(self, said: Spoken) -> bytes:
        """Pack the tokens of a sample; for a text, those that it is likely to have had."""
        tokens: list[int] = []
        for piece in said:
            if isinstance(piece, int):
                tokens.append(piece)
            else:
                tokens += self._encoded(piece)
        return column(tokens) if all(0 <= token < self.size for token in tokens) else b""

    def ids_of(self, text: str, *, adds: bool) -> Sequence[int]:
        """Tokenize a prompt; nothing if that fails. `adds` is whether it gets the special tokens of a plain text."""
        try:
            return self._tokenizer().encode(text, add_special_tokens=adds)
        except (PenstockError, OSError):
            return []

    def _encoded(self, text: str) -> Sequence[int]:
        """Tokenize a text; nothing if it, or the tokenizer, can't be read."""
        tokens = self.ids_of(text, adds=False)
        # A special token that is spelled out in a text was none in the answer.
        return [token for token in tokens if token not in self._special]

    @cached_property
    def _special(self) -> frozenset[int]:
        tokenizer = self._tokenizer()
        return frozenset(filter(tokenizer.is_special, tokenizer.backend.get_added_tokens_decoder()))


def _plain_messages(prompt: ParsedPrompt) -> Sequence[Any]:
    """Copy a prompt's messages into plain types; without those that can't be read, which the door refuses."""
    messages = prompt.messages if prompt.conversation is None else prompt.conversation.messages
    try:
        return [plain(message) for message in messages]
    except Exception:  # a caller's own types may raise anything
        return []
