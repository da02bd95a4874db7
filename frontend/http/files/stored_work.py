"""The interface between the endpoints and what outlives a request: files, and the batches that are answered from them.

`frontend/http/batches/service.py` implements it for the daemon.
"""

from typing import TYPE_CHECKING, Protocol

from ..schemas.files import BatchObject, BatchQuery, DeletedFile, FileObject, FileQuery, NewBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .upload import Upload


class StoredWork(Protocol):
    """An `owner` sees its own files and batches alone."""

    def figures(self) -> dict[str, int]:
        """Gauges for the metrics."""

    async def upload(self, owner: str) -> "Upload": ...
    async def files(self, owner: str, query: FileQuery) -> tuple[list[FileObject], bool]: ...
    async def file(self, owner: str, file_id: str) -> FileObject: ...
    async def content(self, owner: str, file_id: str) -> "tuple[FileObject, Iterator[bytes]]": ...
    async def delete_file(self, owner: str, file_id: str) -> DeletedFile: ...
    async def create(self, owner: str, new: NewBatch) -> BatchObject: ...
    async def batches(self, owner: str, query: BatchQuery) -> tuple[list[BatchObject], bool]: ...
    async def batch(self, owner: str, batch_id: str) -> BatchObject: ...
    async def cancel(self, owner: str, batch_id: str) -> BatchObject: ...
