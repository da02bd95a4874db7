"""Penstock with speculation as it is by default; a prompt that differs from the last has a `cache_salt` of its own."""

from itertools import count

from ..penstock import Penstock
from ..serve import Request, serve


class PenstockAuto(Penstock):
    def __init__(self) -> None:
        super().__init__()
        self._salts = count()
        self._salt, self._last = "", list[int]()

    def run(self, requests: list[Request]) -> list[list[int]]:
        from penstock import SamplingParams

        [(ids, tokens)] = requests
        if ids != self._last:
            self._salt, self._last = f"prompt {next(self._salts)}", ids
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        prompt = {"prompt_token_ids": ids, "cache_salt": self._salt}
        [output] = self._llm.generate([prompt], params, use_tqdm=False)
        return [list(output.outputs.token_ids)]


if __name__ == "__main__":
    serve(PenstockAuto())
