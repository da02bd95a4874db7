"""What `decide` computes: the prompt of each question, and the tokens of its labels behind it.

The questions' prompts are one rendered conversation with another question each. A label of several tokens takes a
prompt for each of its beginnings; its probability is the product along them.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...protocol.errors import RequestError
from ...protocol.fields.rules import shown
from ...protocol.parameters.pooling import PoolingParams
from ..parsing.marks import ThoughtMarks
from ..parsing.parser_choice import Parsing, Parsings
from ..receipts.numbers import DecidedOption, DecidedQuestion, NumbersView, check_size, receipt_of
from ..requests.prompts import is_conversation
from ..text.chat_templates import chat_templates
from .decisions import Answer, Decision, Question, answer_of

if TYPE_CHECKING:
    from ..session.session import Session
    from ..text.tokenizer import Tokenizer

Tokens = tuple[int, ...]
_END_CHARACTERS = 64


@dataclass(frozen=True)
class LabelTree:
    """The labels of a question in tokens: for each beginning of one, the tokens that may follow."""

    spellings: list[list[Tokens]]  # of each label

    @cached_property
    def nodes(self) -> dict[Tokens, list[int]]:
        found: dict[Tokens, dict[int, None]] = {}
        for spelled in (each for label in self.spellings for each in label):
            for index, token in enumerate(spelled):
                found.setdefault(spelled[:index], {})[token] = None
        return {beginning: list(tokens) for beginning, tokens in sorted(found.items(), key=lambda node: len(node[0]))}

    def logprobs(self, values: Sequence[Sequence[float]]) -> list[float]:
        """Compute the log-probability of each label from what each node's prompt gave."""
        known = {
            (beginning, token): float(value)
            for (beginning, tokens), row in zip(self.nodes.items(), values, strict=True)
            for token, value in zip(tokens, row, strict=True)
        }
        return [_total([_along(spelled, known) for spelled in label]) for label in self.spellings]


def _along(spelled: Tokens, known: Mapping[tuple[Tokens, int], float]) -> float:
    return sum(known[spelled[:index], token] for index, token in enumerate(spelled))


def _total(logprobs: Sequence[float]) -> float:
    highest = max(logprobs)
    return highest + math.log(sum(math.exp(each - highest) for each in logprobs))


@dataclass
class DecisionPlan:
    """The prompts of one input's questions, each with its parameters."""

    questions: Sequence[Question]
    trees: list[LabelTree]
    shared: list[int]  # what all prompts begin with
    rest: list[list[int]]  # the tokens of each behind that
    params: list[PoolingParams]

    @property
    def prompts(self) -> Iterator[list[int]]:
        """Made one by one: those of many questions about a long text are long together."""
        return ([*self.shared, *rest] for rest in self.rest)

    def decision(self, results: Sequence[Any]) -> Decision:
        """Make the answers of the prompts' results."""
        if (failed := next((each for each in results if each.outputs is None), None)) is not None:
            return Decision([], error_code=failed.error_code, error_msg=failed.error_msg)
        return Decision(
            answers_of(zip(self.questions, self.trees, strict=True), (each.outputs.data.tolist() for each in results)),
            sum(len(each.prompt_token_ids) for each in results),
            sum(each.num_cached_tokens for each in results),
            receipt=receipt_of(results, self.view),
        )

    def view(self) -> NumbersView:
        pairs = zip(self.questions, self.trees, strict=True)
        return NumbersView(questions=[_decided(question, tree) for question, tree in pairs])


def answers_of(questions: Iterable[tuple[Question, LabelTree]], rows: Iterable[Sequence[float]]) -> list[Answer]:
    """Make the answers of what each prompt gave, in order."""
    remaining = iter(rows)
    return [answer_of(question, tree.logprobs([next(remaining) for _ in tree.nodes])) for question, tree in questions]


def _decided(question: Question, tree: LabelTree) -> DecidedQuestion:
    options = [
        DecidedOption(option.value, option.words, [list(each) for each in spelled])
        for option, spelled in zip(question.options, tree.spellings, strict=True)
    ]
    return DecidedQuestion(question.type, question.name, question.words, options)


class Decider:
    """Plans decisions of one model."""

    def __init__(self, session: "Session[Any]", *, receipt: bool = False) -> None:
        self._session = session
        self._receipt = receipt
        self._tokenizer: Tokenizer = session.tokenizer
        chosen = session.tree_config.chat_template
        self._template = self._tokenizer.template(chosen)
        template = self._template if chosen is not None else chat_templates(session.model_folders[1])
        self._thoughts = Parsings.of(session.tree_config, template).thoughts_of_chats
        self._params: dict[Tokens, PoolingParams] = {}

    def plan(self, state: Any, questions: Sequence[Question]) -> DecisionPlan:
        """Plan the questions about a text or a conversation; raises `RequestError` if it can't be rendered."""
        before, behind = self._rendered(state)
        own = [question.words + behind for question in questions]
        shared, parts = self._ids(before, own)
        trees = [self._tree(question, behind) for question in questions]
        plan = DecisionPlan(questions, trees, shared, [], [])
        for part, tree in zip(parts, trees, strict=True):
            for beginning, tokens in tree.nodes.items():
                plan.rest.append([*part, *beginning])
                params = PoolingParams(logprob_token_ids=tokens, receipt=self._receipt)
                plan.params.append(self._params.setdefault(tuple(tokens), params))
        if self._receipt:
            id_bytes = 4 * (len(shared) * len(plan.rest) + sum(map(len, plan.rest)))
            check_size(id_bytes, id_bytes)
        return plan

    def _rendered(self, state: Any) -> tuple[str, str]:
        """Render the prompt's text before a question, and the text behind it, up to where the answer begins."""
        options = {"enable_thinking": False} if "enable_thinking" in self._template else None
        mark = _mark(state)
        text = self._session.render(_with_question(state, mark), template_options=options)
        before, found, behind = text.rpartition(mark)
        if not found or mark in before:
            raise RequestError(
                "The chat template doesn't write the question as it is, so nothing can be decided. Load the model with "
                "another one (chat_template)."
            )
        return before, behind + without_thought(text, self._thoughts)

    def _ids(self, before: str, own: Sequence[str]) -> tuple[list[int], list[list[int]]]:
        """Tokenize what all prompts begin with, and the rest of each.

        What all begin with is tokenized once, where that comes to the same tokens.
        """
        encode = self._tokenizer.encode_batch
        [shared, whole] = encode([before, before + own[0]], add_special_tokens=False)
        parts = encode(list(own), add_special_tokens=False)
        if [*shared, *parts[0]] == whole:
            return list(shared), parts
        return [], encode([before + text for text in own], add_special_tokens=False)

    def _tree(self, question: Question, behind: str) -> LabelTree:
        return LabelTree([self._spellings(option.label, behind[-_END_CHARACTERS:]) for option in question.options])

    def _spellings(self, label: str, end: str) -> list[Tokens]:
        """Tokenize a label where the answer begins; with a space before it too, if that is one token."""
        [bare, spaced] = (self._behind(end, text) for text in (label, f" {label}"))
        return [bare, spaced] if len(spaced) == 1 and spaced != bare else [bare]

    def _behind(self, end: str, label: str) -> Tokens:
        alone, whole, own = self._tokenizer.encode_batch([end, end + label, label], add_special_tokens=False)
        return tuple(whole[len(alone) :] if whole[: len(alone)] == alone and len(whole) > len(alone) else own)


def without_thought(prompt: str, thoughts: ThoughtMarks | None) -> str:
    """Return the text that brings a prompt to where the answer begins, behind a thought that is empty."""
    if thoughts is None:
        return ""
    end = prompt[-_END_CHARACTERS:]
    if (channels := thoughts.channels) is not None:
        return f"{channels.channel}{channels.texts[0]}{channels.message}"
    if end.rstrip().endswith(thoughts.all_closings):
        return ""
    closing = thoughts.forced or f"\n{thoughts.closing}\n\n"
    return closing if Parsing(thoughts, None).is_thinking(end) else f"{thoughts.opening}\n{closing}"


def _mark(state: Any) -> str:
    """Make a mark that the input doesn't hold, since it has the input's own digest."""
    digest = hashlib.blake2b(repr(state).encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"PENSTOCK-QUESTION-{digest}"


def _with_question(state: Any, mark: str) -> list[dict[str, Any]]:
    """Add the mark of a question at its end: in the last message if that is the user's."""
    messages = [{"role": "user", "content": state}] if isinstance(state, str) else [dict(each) for each in state]
    if any(_has_media(each.get("content")) for each in messages):
        raise RequestError("Questions are decided about texts; leave pictures and videos out of the input.")
    last = messages[-1]
    if last.get("role") != "user":
        return [*messages, {"role": "user", "content": mark}]
    content = last.get("content")
    if not isinstance(content, str | list | tuple):
        raise RequestError(f"The last message's content must be text, not {shown(content)}.")
    if isinstance(content, list | tuple):
        added: Any = [*content, {"type": "text", "text": f"\n\n{mark}"}]
    else:
        added = f"{content}\n\n{mark}"
    return [*messages[:-1], {**last, "content": added}]


def _has_media(content: Any) -> bool:
    parts = content if isinstance(content, list | tuple) else ()
    return any(isinstance(part, Mapping) and part.get("type", "text") != "text" for part in parts)


def each_input(given: Any) -> Iterator[Any]:
    """Yield the inputs of a call: one text or conversation, or a list of them."""
    if isinstance(given, str) or is_conversation(given):
        given = [given]
    if not isinstance(given, list | tuple) or not given:
        raise RequestError("input must be a text or a conversation, or a list of at least one of them.")
    for each in given:
        if not isinstance(each, str) and not is_conversation(each):
            raise RequestError(f"Each input is a text or a conversation, not {type(each).__name__}.")
        yield each
