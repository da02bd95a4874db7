"""A model hub on this machine: a small HTTP server that speaks with huggingface_hub as the real one does.

Large files are redirected to another address, as to a CDN, which knows ranges and no tokens. A test can have a file
stop in the middle, break off, or need a token; every request is noted.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

_LARGE = 1 << 14  # from so many bytes on a file is one of Git LFS


@dataclass
class Repository:
    files: dict[str, bytes]
    revision: str = "main"
    token: str | None = None  # needed to see it
    is_gated: bool = False

    @property
    def commit(self) -> str:
        digest = hashlib.sha1()
        for name, content in sorted(self.files.items()):
            digest.update(name.encode() + content)
        return digest.hexdigest()

    def etag(self, name: str) -> str:
        content = self.files[name]
        if len(content) >= _LARGE:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Request:
    path: str
    range: str | None
    has_token: bool
    is_sent_on: bool = False  # to another host


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    cut: int | None = None  # bytes of the body after which the connection is closed


class Hub:
    def __init__(self, address: str) -> None:
        self.address = address
        self.repositories: dict[str, list[Repository]] = {}
        self.requests: list[Request] = []
        self.stops_at: dict[str, int] = {}  # file → bytes after which nothing more is sent, until `go_on`
        self.breaks_at: dict[str, int] = {}  # file → bytes after which the connection is closed, once
        self.is_stopped = threading.Event()  # set when a file has stopped
        self.go_on = threading.Event()
        self.status = 0  # answered to everything, unless 0
        self.status_of_files = 0  # likewise to what asks for files
        self.error_message = ""  # with these
        self.told: Callable[[Request, Answer], Answer] = lambda request, answer: answer  # what is sent for an answer

    def put(self, name: str, folder: Path | None = None, **options: object) -> Repository:
        """The files of a folder as a repository; more of them are `files`."""
        files = dict(options.pop("files", {}))
        if folder is not None:
            found = (path for path in folder.rglob("*") if path.is_file())
            files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found} | files
        repository = Repository(files, **options)
        self.repositories.setdefault(name, []).insert(0, repository)
        return repository

    def num_listings(self) -> int:
        """How often it was asked which files a model has."""
        return sum(each.path.startswith("/api/models/") for each in self.requests)

    def fetched(self) -> list[str]:
        """Names of the files whose content was sent."""
        found = (re.search(r"/(?:resolve|cdn)/[^/]+/(.+)", each.path) for each in self.requests if not each.is_sent_on)
        return [unquote(match[1]) for match in found if match]

    def ranges(self, name: str) -> list[str | None]:
        """Of each time that its content was asked for."""
        return [each.range for each in self.requests if not each.is_sent_on and unquote(each.path).endswith(f"/{name}")]

    def find(self, name: str, revision: str) -> Repository | None:
        there = self.repositories.get(name, [])
        return next((each for each in there if revision in (each.revision, each.commit)), None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        token = self.headers.get("authorization")
        self.request_noted = Request(path, self.headers.get("range"), token is not None)
        self.hub.requests.append(self.request_noted)
        if self.hub.status:
            self._reply(self.hub.status, {"X-Error-Message": self.hub.error_message}, b"")
        elif match := re.fullmatch(r"/api/models/(.+?)/revision/([^/]+)", path):
            self._listing(match[1], unquote(match[2]), token)
        elif match := re.fullmatch(r"/(.+?)/(resolve|cdn)/([^/]+)/(.+)", path):
            self._file(match[1], unquote(match[3]), unquote(match[4]), token, is_cdn=match[2] == "cdn")
        else:
            self._refuse(404, "RepoNotFound")

    def _listing(self, name: str, revision: str, token: str | None) -> None:
        if (repository := self._repository(name, revision, token)) is None:
            return
        siblings = []
        for each, content in sorted(repository.files.items()):
            entry: dict[str, object] = {"rfilename": each, "size": len(content), "blobId": repository.etag(each)}
            if len(content) >= _LARGE:
                entry["lfs"] = {"sha256": repository.etag(each), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        body = {"_id": "1", "id": name, "modelId": name, "sha": repository.commit, "siblings": siblings}
        self._reply(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _file(self, name: str, revision: str, file: str, token: str | None, *, is_cdn: bool) -> None:
        if self.hub.status_of_files:
            return self._reply(self.hub.status_of_files, {}, b"")
        if (repository := self._repository(name, revision, token, is_cdn=is_cdn)) is None:
            return None
        if file not in repository.files:
            return self._refuse(404, "EntryNotFound")
        content = repository.files[file]
        etag = repository.etag(file)
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if len(content) >= _LARGE and not is_cdn:
            # Of another name, so that it is another host, as a CDN is.
            host = self.hub.address.replace("127.0.0.1", "localhost")
            linked = {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
            location = {"Location": f"{host}/{name}/cdn/{repository.commit}/{file}"}
            self.request_noted.is_sent_on = True
            return self._reply(302, {**headers, **linked, **location}, b"")
        if "range" not in self.headers:
            return self._reply(200, headers, content, file)
        first, last = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["range"]).groups()
        part = content[int(first) : int(last) + 1 if last else None]
        headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        return self._reply(206, headers, part, file, int(first))

    def _repository(self, name: str, revision: str, token: str | None, *, is_cdn: bool = False) -> Repository | None:
        if name not in self.hub.repositories:
            self._refuse(401 if token is None else 404, "RepoNotFound")
            return None
        repository = self.hub.find(name, revision)
        if repository is None:
            self._refuse(404, "RevisionNotFound")
        elif is_cdn or repository.token is None or token == f"Bearer {repository.token}":
            return repository
        elif repository.is_gated:
            self._refuse(401 if token is None else 403, "GatedRepo")
        else:
            self._refuse(401 if token is None else 404, "RepoNotFound")
        return None

    def _refuse(self, status: int, code: str) -> None:
        self._reply(status, {"X-Error-Code": code, "X-Error-Message": code}, b"")

    def _reply(self, status: int, headers: dict[str, str], body: bytes, file: str = "", start: int = 0) -> None:
        status, headers, body, cut = self.hub.told(self.request_noted, Answer(status, headers, body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not {"Content-Length", "Transfer-Encoding"} & headers.keys():
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut is not None:
            body, self.close_connection = body[:cut], True
        stops, breaks = self.hub.stops_at.get(file), self.hub.breaks_at.pop(file, None)
        if breaks is not None and start < breaks:
            body, self.close_connection = body[: breaks - start], True
        elif stops is not None and start < stops:
            self.wfile.write(body[: stops - start])
            self.wfile.flush()
            self.hub.is_stopped.set()
            self.hub.go_on.wait(60)
            body = body[stops - start :]
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves in the middle is what is tried here."""


@contextmanager
def running_hub() -> Iterator[Hub]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        hub = Hub(f"http://127.0.0.1:{server.server_port}")
        server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
        thread = threading.Thread(target=server.serve_forever, name="hub", args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.go_on.set()
            server.shutdown()
            thread.join(10)


@contextmanager
def hub_with_empty_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Asked by this process as the library asks the real one, and a cache for what comes of it."""
    with running_hub() as hub:
        point_at(hub.address, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        try:
            yield hub
        finally:
            hub.go_on.set()
            # One that failed leaves what it did at once to end by itself: it would still write, into the next cache.
            for thread in threading.enumerate():
                if thread.name == "download":
                    thread.join(10)


def point_at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As HF_ENDPOINT does before the library is imported."""
    url = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
