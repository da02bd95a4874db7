"""Advice for requests to paths of other APIs (llama.cpp, the rest of Ollama's, Anthropic's and OpenAI's)."""

from ....protocol.fields.suggestion import suggestion

_CHAT, _COMPLETIONS, _MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
_MANAGED = "Models are managed on the command line: `penstock pull`, `penstock rm`, `penstock models`."
_EMBEDDINGS, _RERANK = "/v1/embeddings", "/v1/rerank"
_KEPT = "Nothing is kept here between requests."
_WHOLE_FILES = "A file comes as a whole, to /v1/files."
_TEXT_ALONE = "Models here take text, and pictures where they see, and give text."
_NOT_JUDGED = "Texts are not judged here."
_NOT_TRAINED = "Models are not trained here."
_NO_SOCKET = "There are no sessions of speech here; /v1/chat/completions streams text."

# Theirs → ours, or a sentence; it also applies to the paths below it.
_OTHERS = {
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
    "/v1/messages/batches": "/v1/batches",
    "/embeddings": _EMBEDDINGS,
    "/embedding": _EMBEDDINGS,
    "/embed": _EMBEDDINGS,
    "/v1/embed": "/v2/embed",
    "/reranking": _RERANK,
    "/v1/reranking": _RERANK,
    "/v1/pooling": "/pooling",
    "/v1/assistants": _KEPT,
    "/v1/threads": _KEPT,
    "/v1/images": _TEXT_ALONE,
    "/v1/audio": _TEXT_ALONE,
    "/v1/videos": _TEXT_ALONE,
    "/v1/moderations": _NOT_JUDGED,
    "/v1/fine_tuning": _NOT_TRAINED,
    "/v1/fine-tunes": _NOT_TRAINED,
    "/v1/evals": _NOT_JUDGED,
    "/v1/realtime": _NO_SOCKET,
    "/v1/conversations": _KEPT,
    "/v1/vector_stores": _KEPT,
    "/v1/containers": _KEPT,
    "/v1/uploads": _WHOLE_FILES,
}


def advice(path: str, paths: list[str]) -> str:
    """A sentence to append for a path that isn't served, with the space before it; empty if there is none."""
    parts = path.rstrip("/").split("/")
    above = ("/".join(parts[:count]) for count in range(len(parts), 1, -1))
    other = next((_OTHERS[each] for each in above if each in _OTHERS), None)
    if other is None:
        return suggestion(path, paths)
    return f" Here it is {other}." if other.startswith("/") else f" {other}"
