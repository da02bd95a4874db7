"""Penstock as an engine that sees: an `LLM` with a tree of its own, asked through `chat`."""

from typing import Any

from ..penstock import Penstock
from .look import Look, SeeingEngine, Seen, serve_looks


class SeeingPenstock(Penstock, SeeingEngine):
    def num_encoded(self) -> int:
        return self._llm.stats().encoded_media

    def look(self, looks: list[Look]) -> list[Seen]:
        from penstock import SamplingParams

        params = [SamplingParams(temperature=0, max_tokens=each.count, ignore_eos=True) for each in looks]
        outputs = self._llm.chat([conversation(each) for each in looks], params, use_tqdm=False)
        return [Seen(len(each.outputs.token_ids), len(each.prompt_token_ids)) for each in outputs]


def conversation(look: Look) -> list[dict[str, Any]]:
    first, *others = look.messages
    content = [{"type": "image", "image": look.pixels}, {"type": "text", "text": first[1]}]
    return [{"role": "user", "content": content}, *({"role": role, "content": text} for role, text in others)]


if __name__ == "__main__":
    serve_looks(SeeingPenstock())
