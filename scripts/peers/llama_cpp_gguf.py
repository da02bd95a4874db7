"""llama.cpp as an engine of the benchmark of GGUF files: as it loads them where nothing is said, mapped."""

from .llama_cpp import LlamaCpp
from .serve import serve


class LlamaCppGguf(LlamaCpp):
    load_mode = "LLAMA_LOAD_MODE_MMAP"


if __name__ == "__main__":
    serve(LlamaCppGguf())
