"""The table of endpoints: path and method, function, a description, and the structs of bodies.

The router and the OpenAPI document are made from the same rows, so they always agree.
"""

from dataclasses import dataclass

import msgspec

from .endpoint import Work
from .endpoints import (
    batches,
    chat,
    completions,
    files,
    messages,
    ollama,
    ollama_models,
    responses,
    state,
    tokens,
)
from .endpoints.numbers import ollama as ollama_numbers
from .endpoints.numbers.cohere import CohereEmbedForm
from .endpoints.numbers.decisions import DecisionsForm
from .endpoints.numbers.embeddings import ClassifyForm, EmbeddingsForm, PoolingForm
from .endpoints.numbers.form import endpoint
from .endpoints.numbers.rerank import RerankForm, ScoreForm
from .schemas import files as stored
from .schemas import numbers as given
from .schemas import ollama as tagged
from .schemas import others
from .schemas.chat import ChatChunk, ChatCompletion, ChatRequest
from .schemas.completions import Completion, CompletionRequest
from .schemas.decisions import DecisionReply, DecisionRequest
from .schemas.messages import Message, MessageEvent, MessagesRequest, TokenCount
from .schemas.responses import Response, ResponseEvent, ResponsesRequest


@dataclass(frozen=True, slots=True)
class Operation:
    path: str  # `{named}` matches the rest of a path
    method: str
    work: Work
    sentence: str
    body: type[msgspec.Struct] | None = None
    reply: type[msgspec.Struct] | None = None  # None: no JSON
    event: type[msgspec.Struct] | None = None  # a piece of its stream
    answer_ids: str | None = None  # their prefix; requests that have one are listed while they run
    query: type[msgspec.Struct] | None = None
    is_upload: bool = False  # the body is a form with a file
    media_type: str = "text/plain"  # of a reply without JSON
    streams_lines: bool = False  # of JSON, instead of server-sent events


LOAD_PATHS = ("/load", "/v1/load", "/v1/loads")

OPERATIONS = (
    Operation(
        "/v1/chat/completions", "POST", chat.chat, "Answer a conversation",
        ChatRequest, ChatCompletion, ChatChunk, "chatcmpl-",
    ),
    Operation(
        "/v1/completions", "POST", completions.completions, "Continue one or more prompts",
        CompletionRequest, Completion, Completion, "cmpl-",
    ),
    Operation(
        "/v1/responses", "POST", responses.responses, "Answer a conversation, in OpenAI's newer API; nothing is stored",
        ResponsesRequest, Response, ResponseEvent, "resp_",
    ),
    Operation(
        "/v1/messages", "POST", messages.messages, "Answer a conversation, in Anthropic's API",
        MessagesRequest, Message, MessageEvent, "msg_",
    ),
    Operation(
        "/v1/messages/count_tokens", "POST", messages.count_tokens, "Count the tokens of such a conversation",
        MessagesRequest, TokenCount,
    ),
    Operation(
        "/v1/embeddings", "POST", endpoint(EmbeddingsForm), "Compute the vectors of texts or token ids",
        given.EmbeddingRequest, given.EmbeddingList, answer_ids="embd-",
    ),
    Operation(
        "/v2/embed", "POST", endpoint(CohereEmbedForm), "Compute the vectors of texts, in Cohere's API",
        given.CohereEmbedRequest, given.CohereEmbedReply, answer_ids="embd-",
    ),
    *(
        Operation(
            path, "POST", endpoint(RerankForm), "Order documents by how well they fit a query",
            given.RerankRequest, given.RerankReply, answer_ids="rerank-",
        )
        for path in ("/v1/rerank", "/v2/rerank", "/rerank")
    ),
    *(
        Operation(
            path, "POST", endpoint(ScoreForm), "Score how well texts fit others",
            given.ScoreRequest, given.ScoreList, answer_ids="score-",
        )
        for path in ("/v1/score", "/score")
    ),
    *(
        Operation(
            path, "POST", endpoint(ClassifyForm), "Compute the probabilities of classes of texts",
            given.ClassifyRequest, given.ClassifiedList, answer_ids="classify-",
        )
        for path in ("/v1/classify", "/classify")
    ),
    Operation(
        "/pooling", "POST", endpoint(PoolingForm), "Compute a model's numbers for texts, or for each of their tokens",
        given.PoolingRequest, given.PooledList, answer_ids="pool-",
    ),
    Operation(
        "/v1/decisions", "POST", endpoint(DecisionsForm),
        "Answer questions about a text by the probabilities of labels",
        DecisionRequest, DecisionReply, answer_ids="decision-",
    ),
    Operation(
        "/v1/files", "POST", files.upload, "Keep a file for a batch",
        files.Form, stored.FileObject, is_upload=True,
    ),
    Operation("/v1/files", "GET", files.listing, "List your files", reply=stored.FileList, query=stored.FileQuery),
    Operation(
        "/v1/files/{named}/content", "GET", files.content, "Return the content of one of them",
        media_type="application/octet-stream",
    ),
    Operation("/v1/files/{named}", "GET", files.file, "Describe one of them", reply=stored.FileObject),
    Operation("/v1/files/{named}", "DELETE", files.delete, "Delete one of them", reply=stored.DeletedFile),
    Operation(
        "/v1/batches", "POST", batches.create, "Answer the requests in a file, after those of people who wait",
        stored.NewBatch, stored.BatchObject,
    ),
    Operation(
        "/v1/batches", "GET", batches.listing, "List your batches",
        reply=stored.BatchList, query=stored.BatchQuery,
    ),
    Operation(
        "/v1/batches/{named}/cancel", "POST", batches.cancel, "Stop one of them; its answers so far are kept",
        reply=stored.BatchObject,
    ),
    Operation("/v1/batches/{named}", "GET", batches.batch, "Describe one of them", reply=stored.BatchObject),
    Operation("/v1/models", "GET", state.models, "List the models that requests may name", reply=others.ModelList),
    Operation("/v1/models/{named}", "GET", state.model, "Describe one of these models", reply=others.ModelCard),
    Operation(
        "/models/load", "POST", state.load, "Load a model; the reply comes when it is ready",
        others.ModelName, others.Done,
    ),
    Operation(
        "/models/unload", "POST", state.unload, "Unload a model, if nobody uses it",
        others.ModelName, others.Done,
    ),
    Operation(
        "/tokenize", "POST", tokens.tokenize, "Tokenize a text or a conversation",
        others.TokenizeRequest, others.TokenizeReply,
    ),
    Operation(
        "/detokenize", "POST", tokens.detokenize, "Convert tokens to text",
        others.DetokenizeRequest, others.DetokenizeReply,
    ),
    Operation(
        "/v1/requests", "GET", state.requests, "List your running requests",
        reply=others.RequestList,
    ),
    Operation(
        "/v1/requests/{named}", "DELETE", state.stop, "Stop one of them; its client gets 499",
        reply=others.StoppedRequest,
    ),
    Operation(
        "/api/chat", "POST", ollama.chat, "Answer a conversation, in Ollama's API",
        tagged.OllamaChatRequest, tagged.OllamaChatPiece, tagged.OllamaChatPiece, "chat-", streams_lines=True,
    ),
    Operation(
        "/api/generate", "POST", ollama.generate, "Answer one prompt, in Ollama's API",
        tagged.OllamaGenerateRequest, tagged.OllamaGeneratePiece, tagged.OllamaGeneratePiece, "generate-",
        streams_lines=True,
    ),
    Operation(
        "/api/embed", "POST", ollama_numbers.embed, "Compute the vectors of texts, in Ollama's API",
        tagged.OllamaEmbedRequest, tagged.OllamaEmbedReply, answer_ids="embed-",
    ),
    Operation(
        "/api/embeddings", "POST", ollama_numbers.embeddings, "Compute the vector of a text, in Ollama's older API",
        tagged.OllamaOldEmbedRequest, tagged.OllamaOldEmbedReply, answer_ids="embed-",
    ),
    Operation("/api/tags", "GET", ollama_models.tags, "List the models, as Ollama does", reply=tagged.TagList),
    Operation("/api/ps", "GET", ollama_models.loaded, "List those that are loaded", reply=tagged.LoadedTags),
    Operation(
        "/api/show", "POST", ollama_models.show, "Describe one of them, as Ollama does",
        tagged.ShowRequest, tagged.ShownModel,
    ),
    Operation(
        "/api/version", "GET", ollama_models.version, "Return the version of Ollama's API",
        reply=tagged.OllamaVersion,
    ),
    Operation("/health", "GET", state.health, "Report whether models can answer, and why not", reply=others.Health),
    Operation("/ready", "GET", state.ready, "Report whether requests would be taken now", reply=others.Health),
    Operation("/ping", "GET", state.ping, "Report that the server is running", reply=others.Alive),
    *(
        Operation(path, "GET", state.server_load, "Report how busy the models are", reply=others.ServerLoad)
        for path in LOAD_PATHS
    ),
    Operation("/metrics", "GET", state.metrics, "Return metrics for Prometheus"),
)  # fmt: skip
