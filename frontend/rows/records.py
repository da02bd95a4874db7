"""Formats a finished request as a JSON object on a line. Lines of OpenAI's batches have a form of their own
(`frontend/rows/batch_line.py`).

A request is identified by its number in the order of the prompts.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...protocol.outputs import CompletionOutput, LogprobsByToken, RequestOutput
from ..requests.prompts import Conversation
from .prompts import Row


def as_json(number: int, row: Row, output: RequestOutput) -> str:
    return json.dumps(record_of(number, row, output), ensure_ascii=False) + "\n"


def record_of(number: int, row: Row, output: RequestOutput) -> dict[str, Any]:
    record: dict[str, Any] = {"index": number}
    if row.name is not None:
        record["id"] = row.name
    if output.error_code != 200:
        record |= {"error_code": output.error_code, "error_msg": output.error_msg}
    record |= prompt_of(row) or {"prompt": output.prompt if output.prompt is not None else output.prompt_token_ids}
    record["outputs"] = [_sample(answer) for answer in output.outputs]
    record["usage"] = {
        "prompt_tokens": len(output.prompt_token_ids),
        "cached_tokens": output.num_cached_tokens,
        "output_tokens": sum(len(answer.token_ids) for answer in output.outputs),
    }
    if output.prompt_logprobs is not None:
        record["prompt_logprobs"] = [by_token and _shown(by_token) for by_token in output.prompt_logprobs]
    if output.receipt is not None:
        record["receipt"] = output.receipt
    return record


def prompt_of(row: Row) -> dict[str, Any]:
    """The prompt as the row has it, under the name that a line has for it; empty if the row was refused."""
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
