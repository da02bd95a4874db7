"""llama.cpp as an engine that sees: its library mtmd through ctypes, beside the calls of the folder above.

As its server does it: what a sequence's memory holds of a conversation already is passed over; each picture is encoded
and computed as its turn comes; answers are computed together, one step after another.
"""

import ctypes
from pathlib import Path
from typing import Any

from ..llama_cpp import BATCH_TOKENS, CONTEXT_STEP, FILE_TYPES, MODEL_FILE, LlamaCpp
from ..serve import Settings
from .look import HEIGHT, WIDTH, Look, SeeingEngine, Seen, serve_looks

ENCODER = "BF16"  # the fastest of those that its file may have; F16 took 1.16 times as long, Q8_0 1.35 times
FLASH_ATTENTION = 1  # 0.66 times as long as without
TOKENS = 5 * CONTEXT_STEP  # of a sequence's memory: two turns about a picture


class SeeingLlamaCpp(LlamaCpp, SeeingEngine):
    def __init__(self) -> None:
        super().__init__()
        self._sight: Any = None
        self._num_encoded = 0
        self._kept: dict[int, tuple[Look, int]] = {}  # by sequence: whose prompt it holds, up to which position

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        from ...formats.quantize_gguf import quantize
        from ...formats.sight_gguf import write_encoder, write_text

        folder.mkdir()
        whole = folder / "whole.gguf"
        write_text(checkpoint, whole)
        quantize(whole, folder / MODEL_FILE, FILE_TYPES[quantization])
        whole.unlink()
        write_encoder(checkpoint, folder / "mmproj.gguf", ENCODER)

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        from llama_cpp import mtmd_cpp

        found = super().load(folder, settings)
        options = mtmd_cpp.mtmd_context_params_default()
        options.use_gpu, options.n_threads, options.print_timings = False, settings.threads, False
        options.flash_attn_type = FLASH_ATTENTION
        self._sight = mtmd_cpp.mtmd_init_from_file(str(folder / "mmproj.gguf").encode(), self._model, options)
        if not self._sight:
            raise RuntimeError(f"llama.cpp could not load {folder / 'mmproj.gguf'}")
        return found | {"encoder": ENCODER}

    def make_room_for(self, looks: list[Look]) -> None:
        shape = (len(looks), TOKENS)
        if shape != self._shape:
            self._make_context(len(looks), len(looks) * TOKENS, is_common=False)
            self._shape, self._kept = shape, {}

    def num_encoded(self) -> int:
        return self._num_encoded

    def look(self, looks: list[Look]) -> list[Seen]:
        begun = [self._begin(sequence, each) for sequence, each in enumerate(looks)]
        answers = [[first] for first, _ in begun]
        while unfinished := [number for number, each in enumerate(looks) if len(answers[number]) < each.count]:
            step = [
                (answers[number][-1], self._kept[number][1] + len(answers[number]) - 1, number, True)
                for number in unfinished
            ]
            for number, token in self.decode(step).items():
                answers[number].append(token)
        return [Seen(len(tokens), num_prompt) for tokens, (_, num_prompt) in zip(answers, begun, strict=True)]

    def _begin(self, sequence: int, look: Look) -> tuple[int, int]:
        """Computes a prompt, as far as it isn't the one that the sequence holds; gives the answer's first token and how
        many tokens of the prompt were computed."""
        known, position = self._kept.get(sequence, (None, 0))
        num_turns = 0 if known is None else len(known.turns)
        if known is None or known.picture != look.picture or known.turns != look.turns[:num_turns]:
            num_turns = position = 0
        self.forget(sequence, position)
        num_tokens, end = self._compute(self._text(look, num_turns), look, sequence, position)
        self._kept[sequence] = (look, end)
        return self.likeliest(-1), num_tokens

    def _compute(self, text: str, look: Look, sequence: int, position: int) -> tuple[int, int]:
        """Compute a text with its picture; returns its number of tokens and the position after them."""
        from llama_cpp import llama_pos, mtmd_cpp

        pixels = look.pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        has_picture = mtmd_cpp.mtmd_default_marker() in text.encode()
        bitmaps = [mtmd_cpp.mtmd_bitmap_init(WIDTH, HEIGHT, pixels)] if has_picture else []
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        given = mtmd_cpp.mtmd_input_text(text.encode(), len(text.encode()), False, True)
        array = (mtmd_cpp.mtmd_bitmap_p_ctypes * len(bitmaps))(*bitmaps)
        if status := mtmd_cpp.mtmd_tokenize(self._sight, chunks, ctypes.byref(given), array, len(bitmaps)):
            raise RuntimeError(f"mtmd_tokenize failed with status {status}")
        past = llama_pos(position)
        if status := mtmd_cpp.mtmd_helper_eval_chunks(
            self._sight, self._context, chunks, past, sequence, BATCH_TOKENS, True, ctypes.byref(past)
        ):
            raise RuntimeError(f"mtmd_helper_eval_chunks failed with status {status}")
        self._num_encoded += len(bitmaps)
        num_tokens = mtmd_cpp.mtmd_helper_get_n_tokens(chunks)
        for bitmap in bitmaps:
            mtmd_cpp.mtmd_bitmap_free(bitmap)
        mtmd_cpp.mtmd_input_chunks_free(chunks)
        return num_tokens, past.value

    def _text(self, look: Look, num_known: int) -> str:
        """The rendered turns after the known ones."""
        from llama_cpp import mtmd_cpp

        marker = mtmd_cpp.mtmd_default_marker().decode()
        parts = []
        for number, text in enumerate(look.turns):
            picture = "" if number else marker
            asked = f"<|im_start|>user\n{picture}{text}<|im_end|>\n<|im_start|>assistant\n"
            parts.append(f"{text}<|im_end|>\n" if number % 2 else asked)
        return "".join(parts[num_known:])


if __name__ == "__main__":
    serve_looks(SeeingLlamaCpp())
