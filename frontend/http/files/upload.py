"""Receives a file that a client uploads as a form, and writes it to the disk piece by piece.

However long the file, only a buffer of it is in memory. Nothing is left of an upload that is refused, breaks off, or
stands still: each MiB has `body_timeout` seconds.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from ...session.threads import Threads
from ..answers.errors import ApiError
from ..requests.body import ClientDisconnect, Receive, Scope, only_header
from ..requests.decoding import converted
from ..schemas.files import FileObject, UploadForm
from .multipart import FormEvent, FormParser, PartHead, boundary_of
from .store import LIFE_SECONDS, FileStore, StoredFile, counted, disk_error, new_id

# Bytes that are written at once.
BUFFER_BYTES = 256 << 10
# The most that a form has besides its file: other parts, boundaries, and whatever surrounds them.
_FORM_BYTES = 64 << 10
_TIMED_BYTES = 1 << 20
_MOST_FIELD_BYTES = 1 << 10
_LONGEST_NAME = 255
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Upload:
    """One file on its way in; `close` removes what `keep` hasn't kept."""

    def __init__(self, store: FileStore, owner: str, threads: Threads) -> None:
        self._store = store
        self._owner = owner
        self._threads = threads
        self._path = store.unfinished()
        self._file = -1
        self._lock = threading.Lock()  # a write whose task was cancelled may still be going on
        self._is_closed = False
        self._buffer = bytearray()
        self._size = 0
        self._counted = 0
        self._fields: dict[str, bytes] = {}
        self._field: str | None = None  # the field whose content comes; None: the file's
        self._filename: str | None = None

    async def read(self, scope: Scope, receive: Receive) -> None:
        """Receive the whole form."""
        parser, options = FormParser(self._boundary(scope)), self._store.options
        goes_on: Callable[[], None] = scope.get("extensions", {}).get("penstock.body_goes_on", lambda: None)
        loop, num_bytes, has_more = asyncio.get_running_loop(), 0, True
        try:
            async with asyncio.timeout(options.body_timeout) as time_left:
                while has_more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    piece, has_more = message.get("body", b""), message.get("more_body", False)
                    for event in parser.feed(piece):
                        await self._take(event)
                    if num_bytes // _TIMED_BYTES != (num_bytes + len(piece)) // _TIMED_BYTES:
                        time_left.reschedule(loop.time() + options.body_timeout)
                        goes_on()
                    num_bytes += len(piece)
                    if num_bytes - self._size > _FORM_BYTES:
                        sentence = f"The form has more than {_FORM_BYTES:,} bytes that are not its file's."
                        raise ApiError(413, sentence, param="file")
        except TimeoutError:
            raise ApiError(408, f"A MiB of the upload took more than {options.body_timeout:g} s.") from None
        parser.end()
        await self._write()

    def _boundary(self, scope: Scope) -> bytes:
        encoding, kind, length = (
            only_header(scope, name) for name in (b"content-encoding", b"content-type", b"content-length")
        )
        if encoding is not None and encoding.strip().lower() != b"identity":
            raise ApiError(415, "Compressed bodies are not taken; send the form as it is.")
        boundary = boundary_of((kind or b"").decode("latin-1"))
        if length is not None and length.isdigit():
            if int(length[:20]) > self._most_bytes + _FORM_BYTES:
                raise self._too_large()
            self._charge(int(length))  # at once, so that of several uploads the first ones fit
        return boundary

    @property
    def _most_bytes(self) -> int:
        return self._store.options.max_file_bytes

    def _too_large(self) -> ApiError:
        return ApiError(413, f"A file has at most {self._most_bytes:,} bytes (option max_file_bytes).", param="file")

    async def _take(self, event: FormEvent) -> None:
        match event:
            case PartHead(name, filename):
                self._begin(name, filename)
            case bytes() if self._field is None:
                self._count(len(event))
                self._buffer += event
                if len(self._buffer) >= BUFFER_BYTES:
                    await self._write()
            case bytes() if (field := self._field) is not None:
                self._fields[field] += event
                if len(self._fields[field]) > _MOST_FIELD_BYTES:
                    raise ApiError(400, f"{field[:64]}: it has more than {_MOST_FIELD_BYTES:,} bytes.")

    def _begin(self, name: str, filename: str | None) -> None:
        if name in self._fields or (name == "file" and self._filename is not None):
            raise ApiError(400, f"The form has {name!r} twice.", param=name)
        if name == "file":
            if filename is None:
                raise ApiError(400, "file: it must be a file with a name, and not a plain field.", param="file")
            self._field, self._filename = None, sanitized(filename)
        else:
            self._field = name
            self._fields[name] = b""

    def _count(self, num_bytes: int) -> None:
        self._size += num_bytes
        if self._size > self._most_bytes:
            raise self._too_large()
        self._charge(self._size)

    def _charge(self, num_bytes: int) -> None:
        """Count so many bytes to the owner's, before they are kept."""
        more = max(0, counted(num_bytes) - self._counted)
        self._counted += more
        self._store.used[self._owner] += more
        self._store.check_quota(self._owner)

    async def _write(self) -> None:
        content, self._buffer = self._buffer, bytearray()
        await self._threads.run(self._write_now, content, client=self._owner)

    def _write_now(self, content: bytearray) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                if self._file < 0:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    self._file = os.open(self._path, flags, 0o600)
                view = memoryview(content)
                while view:
                    view = view[os.write(self._file, view) :]
            except OSError as error:
                raise disk_error(error) from error

    async def keep(self) -> FileObject:
        """Check the form's fields, and put the file into the store."""
        if self._filename is None:
            raise ApiError(400, "file: the form has no file.", param="file")
        if not self._size:
            raise ApiError(400, "file: it is empty.", param="file")
        form = self._form()
        life = form.expires_after.seconds if form.expires_after is not None else LIFE_SECONDS
        now = int(self._store.clock())
        shown = FileObject(
            id=new_id("file-"),
            bytes=self._size,
            created_at=now,
            filename=self._filename,
            purpose=form.purpose,
            expires_at=now + life,
        )
        file = StoredFile(self._owner, shown)
        await self._threads.run(self._keep_now, file, client=self._owner)
        self._store.show(file)
        return shown

    def _keep_now(self, file: StoredFile) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise disk_error(error) from error
        self._store.keep(self._path, file)

    def _form(self) -> UploadForm:
        """The fields; those of `expires_after` come as `expires_after[seconds]`."""
        given: dict[str, Any] = {}
        for name, content in self._fields.items():
            try:
                value: Any = content.decode()
            except UnicodeDecodeError:
                raise ApiError(400, f"{name}: it is not UTF-8.", param=name) from None
            outer, _, inner = name.partition("[")
            if inner.endswith("]") and outer:
                if not isinstance(inside := given.setdefault(outer, {}), dict):
                    raise ApiError(400, f"The form has {outer!r} twice.", param=outer)
                inside[inner[:-1]] = int(value) if value.isdecimal() and len(value) < 18 else value
            else:
                given[name] = value
        purpose = given.get("purpose")
        if purpose != "batch":
            why = "there is none" if purpose is None else f"{str(purpose)[:64]!r} is not known here"
            raise ApiError(400, f"purpose: {why}; files are kept for batches alone: give batch.", param="purpose")
        return converted(given, UploadForm)

    async def close(self) -> None:
        """Forget what was counted meanwhile, and remove what is unfinished."""
        self._store.used[self._owner] -= self._counted
        self._counted = 0
        await asyncio.shield(self._threads.run(self._close_now))

    def _close_now(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            self._path.unlink(missing_ok=True)


def sanitized(filename: str) -> str:
    """A name without folders, and without characters that would mislead who reads it. It never names a file here."""
    name = _UNPRINTABLE.sub("", re.split(r"[/\\]", filename)[-1]).strip()
    return name[:_LONGEST_NAME] if name not in ("", ".", "..") else "file"
