"""Finished requests as a shell wants them: text for people, or one JSON object a line.

Knows nothing of where they come from; a request is known by its number in the order of the prompts.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ...protocol.outputs import CompletionOutput, LogprobsByToken, RequestOutput
from .. import logs


def as_text(number: int, name: str | float | None, output: RequestOutput, *, is_alone: bool) -> Iterator[str]:
    """The bare answer where there is only one; else each under a heading, since they come as they complete."""
    title = number if name is None else name
    if output.error_code != 200:
        logs.say(f"penstock: prompt {title}: {output.error_msg}", quiet=False)
        return
    for answer in output.outputs:
        if not is_alone or len(output.outputs) > 1:
            yield f"==> {title} <==\n" if len(output.outputs) == 1 else f"==> {title}, answer {answer.index} <==\n"
        yield answer.text if answer.text.endswith("\n") else answer.text + "\n"


def as_json(number: int, name: str | float | None, output: RequestOutput) -> str:
    record: dict[str, Any] = {"index": number}
    if name is not None:
        record["id"] = name
    if output.error_code != 200:
        record |= {"error_code": output.error_code, "error_msg": output.error_msg}
    record["prompt"] = output.prompt if output.prompt is not None else output.prompt_token_ids
    record["outputs"] = [_sample(answer) for answer in output.outputs]
    record["usage"] = {
        "prompt_tokens": len(output.prompt_token_ids),
        "cached_tokens": output.num_cached_tokens,
        "output_tokens": sum(len(answer.token_ids) for answer in output.outputs),
    }
    if output.prompt_logprobs is not None:
        record["prompt_logprobs"] = [by_token and _shown(by_token) for by_token in output.prompt_logprobs]
    return json.dumps(record, ensure_ascii=False) + "\n"


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
