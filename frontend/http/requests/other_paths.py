"""Advice for requests to paths of other APIs (Ollama, llama.cpp, Anthropic, the rest of OpenAI's): what to use here."""

from ....protocol.fields.suggestion import suggestion

_CHAT, _COMPLETIONS, _MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
_MANAGED = "Models are managed on the command line: `penstock pull`, `penstock rm`, `penstock models`."
_NO_EMBEDDINGS = "Embeddings are not computed here."
_KEPT = "Nothing is kept here between requests."
_NO_BATCHES = "A file of requests is answered by `penstock generate MODEL --input FILE`."
_TEXT_ALONE = "Models here take text and give text."

# Theirs → ours, or a sentence.
_OTHERS = {
    "/api/chat": _CHAT,
    "/api/generate": _COMPLETIONS,
    "/api/tags": _MODELS,
    "/api/show": _MODELS,
    "/api/ps": _MODELS,
    "/api/version": "/health",
    "/api/embed": _NO_EMBEDDINGS,
    "/api/embeddings": _NO_EMBEDDINGS,
    "/api/pull": _MANAGED,
    "/api/push": _MANAGED,
    "/api/create": _MANAGED,
    "/api/copy": _MANAGED,
    "/api/delete": _MANAGED,
    "/generate": _COMPLETIONS,
    "/generate_stream": _COMPLETIONS,
    "/completion": _COMPLETIONS,
    "/infill": _COMPLETIONS,
    "/props": _MODELS,
    "/slots": "/v1/requests",
    "/v1/messages": _CHAT,
    "/v1/embeddings": _NO_EMBEDDINGS,
    "/embeddings": _NO_EMBEDDINGS,
    "/embedding": _NO_EMBEDDINGS,
    "/v1/rerank": _NO_EMBEDDINGS,
    "/rerank": _NO_EMBEDDINGS,
    "/v1/score": _NO_EMBEDDINGS,
    "/v1/batches": _NO_BATCHES,
    "/v1/files": _NO_BATCHES,
    "/v1/assistants": _KEPT,
    "/v1/threads": _KEPT,
    "/v1/images/generations": _TEXT_ALONE,
    "/v1/audio/speech": _TEXT_ALONE,
    "/v1/audio/transcriptions": _TEXT_ALONE,
}


def advice(path: str, paths: list[str]) -> str:
    """A sentence to append for a path that isn't served, with the space before it; empty where there is none."""
    other = _OTHERS.get(path.rstrip("/"))
    if other is None:
        return suggestion(path, paths)
    return f" Here it is {other}." if other.startswith("/") else f" {other}"
