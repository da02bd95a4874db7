"""Formats finished requests for a shell: text for people, or one JSON object per line.

A request is identified by its number in the order of the prompts.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from ....protocol.outputs import CompletionOutput, LogprobsByToken, RequestOutput
from ...requests.prompts import Conversation
from ..repl.conversation import AnswerDelta
from .prompts import Row


class TitledAnswer(NamedTuple):
    """One answer with its heading."""

    heading: str
    piece: AnswerDelta


def titled(number: int, row: Row, output: RequestOutput, *, is_alone: bool) -> Iterator[TitledAnswer]:
    """The bare answer if there is only one; otherwise each under a heading."""
    for answer in output.outputs:
        heading = ""
        if not is_alone or len(output.outputs) > 1:
            sample = f", answer {answer.index}" if len(output.outputs) > 1 else ""
            heading = heading_of(number, row, sample)
        yield TitledAnswer(heading, AnswerDelta.of(answer))


def heading_of(number: int, row: Row, sample: str = "") -> str:
    return f"==> {title(number, row)}{sample} <==\n"


def title(number: int, row: Row) -> str | float:
    if row.batch is not None:
        return row.batch.custom_id
    return number if row.name is None else row.name


def as_text(answers: Iterator[TitledAnswer]) -> str:
    """Format as text, without thoughts."""
    return "".join(heading + (text if text.endswith("\n") else text + "\n") for heading, (_, text) in answers)


def as_json(number: int, row: Row, output: RequestOutput) -> str:
    record: dict[str, Any] = {"index": number}
    if row.name is not None:
        record["id"] = row.name
    if output.error_code != 200:
        record |= {"error_code": output.error_code, "error_msg": output.error_msg}
    record |= given(row) or {"prompt": output.prompt if output.prompt is not None else output.prompt_token_ids}
    record["outputs"] = [_sample(answer) for answer in output.outputs]
    record["usage"] = {
        "prompt_tokens": len(output.prompt_token_ids),
        "cached_tokens": output.num_cached_tokens,
        "output_tokens": sum(len(answer.token_ids) for answer in output.outputs),
    }
    if output.prompt_logprobs is not None:
        record["prompt_logprobs"] = [by_token and _shown(by_token) for by_token in output.prompt_logprobs]
    return json.dumps(record, ensure_ascii=False) + "\n"


def given(row: Row) -> dict[str, Any]:
    """The prompt as the row has it; empty if the row was refused."""
    match row.prompt:
        case Conversation():
            return {"messages": row.prompt.messages}
        case Mapping():
            text = row.prompt.get("prompt")
            return {"prompt": row.prompt["prompt_token_ids"] if text is None else text}
        case str() | list():
            return {"prompt": row.prompt}
    return {}


def _sample(answer: CompletionOutput) -> dict[str, Any]:
    sample: dict[str, Any] = {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }
    if answer.reasoning_content is not None:
        sample["reasoning_content"] = answer.reasoning_content
    if answer.tool_calls is not None:
        sample["tool_calls"] = [asdict(call) for call in answer.tool_calls]
    if answer.logprobs is not None:
        sample["cumulative_logprob"] = answer.cumulative_logprob
        sample["logprobs"] = [_shown(by_token) for by_token in answer.logprobs]
    return sample


def _shown(by_token: LogprobsByToken) -> dict[int, dict[str, Any]]:
    return {token: entry._asdict() for token, entry in by_token.items()}
