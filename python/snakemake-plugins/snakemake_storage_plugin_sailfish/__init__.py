"""Stored files of a Sailfish cluster as Snakemake's storage: `sailfish://NAME`.

    snakemake --default-storage-provider sailfish --default-storage-prefix sailfish://runs/tutorial ...

Each object is a file or a directory of `sailfish files`, whole or not there. The server is that of `--storage-sailfish-server`, of the
executor plugin's `--sailfish-server`, or of SAILFISH_SERVER. Programs of jobs reach their own server through the socket of their node.
"""

import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sailfish import files
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.common import Operation
from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime, get_constant_prefix
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import (
    StorageObjectGlob,
    StorageObjectRead,
    StorageObjectTouch,
    StorageObjectWrite,
)
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

_SCHEME = "sailfish://"
#: Requests of one process of Snakemake; a server admits 500 of a user.
_REQUESTS_PER_SECOND = 100.0


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):
    """Options of the storage, `--storage-sailfish-...`."""

    server: str | None = field(
        default=None,
        metadata={
            "help": "URL of the server whose stored files are used, as in http://127.0.0.1:7070. Default: that of --sailfish-server, or of "
            "SAILFISH_SERVER; in jobs, that of their node.",
            "type": str,
        },
    )
    replicas: int | None = field(
        default=None,
        metadata={"help": "Number of nodes that get each stored file. Default: 3, or the number of nodes if that is lower.", "type": int},
    )


class StorageProvider(StorageProviderBase):
    """The stored files of one server."""

    def __post_init__(self) -> None:
        self.server: str = getattr(self.settings, "server", None) or os.environ.get("SAILFISH_SERVER", "")
        # Tagged settings arrive as text.
        replicas = getattr(self.settings, "replicas", None)
        self.replicas: int | None = None if replicas is None else int(replicas)

    def named_server(self) -> str:
        """Returns the URL of the server. Error: `WorkflowError` if none is named."""
        if not self.server:
            raise WorkflowError("no Sailfish server is named: give --sailfish-server URL, --storage-sailfish-server URL or SAILFISH_SERVER")
        return self.server

    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        return [
            ExampleQuery(query="sailfish://runs/tutorial/calls/all.vcf", type=QueryType.ANY, description="A stored file or directory"),
            ExampleQuery(query="sailfish://genomes/hg38.fa@12", type=QueryType.INPUT, description="A version of a stored file"),
        ]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        return self.server

    def default_max_requests_per_second(self) -> float:
        return _REQUESTS_PER_SECOND

    def use_rate_limiter(self) -> bool:
        return True

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        name = query.removeprefix(_SCHEME)
        reason = None
        if name == query:
            reason = f"it must begin with {_SCHEME}"
        elif not all(part not in ("", ".", "..") for part in name.split("/")):
            reason = "a name has parts between single /, and none of them is . or .."
        return StorageQueryValidationResult(query=query, valid=reason is None, reason=reason)

    def postprocess_query(self, query: str) -> str:
        name = query.removeprefix(_SCHEME)
        return query if name == query else _SCHEME + name.strip("/")


class StorageObject(StorageObjectRead, StorageObjectWrite, StorageObjectGlob, StorageObjectTouch):
    """A stored file or directory."""

    def _name(self) -> str:
        return str(self.query).removeprefix(_SCHEME)

    def _server(self) -> str:
        server: str = self.provider.named_server()
        return server

    def _stat(self) -> files.StoredFile:
        return files.stat(self._name(), server=self._server())

    def local_suffix(self) -> str:
        return self._name()

    def get_inventory_parent(self) -> str | None:
        return _SCHEME + self._name().rpartition("/")[0]

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """Asks for the whole directory of the object with one request."""
        parent = self.get_inventory_parent()
        # The interface has no name for this set of Snakemake's cache.
        listed: set[str | None] = cache.exists_in_storage.has_inventory
        # A list has the current versions only.
        if parent in listed or files.is_versioned(self._name()):
            return
        async with self._rate_limiter(Operation.EXISTS):
            try:
                entries = files.ls(parent.removeprefix(_SCHEME) if parent else "/", server=self._server())
            except FileNotFoundError:
                entries = []
        for entry in entries:
            key = self.cache_key(entry.name)
            cache.exists_in_storage[key] = True
            cache.mtime[key] = Mtime(storage=entry.created.timestamp())
            cache.size[key] = entry.bytes
        listed.add(parent)

    def cleanup(self) -> None:
        pass

    def exists(self) -> bool:
        return files.exists(self._name(), server=self._server())

    def mtime(self) -> float:
        return self._stat().created.timestamp()

    def size(self) -> int:
        return self._stat().bytes

    def local_footprint(self) -> int:
        found = self._stat()
        if found.kind == "file":
            return found.bytes
        return sum(entry.bytes for entry in files.ls(self._name(), recursive=True, server=self._server()))

    def retrieve_object(self) -> None:
        path = self.local_path()
        # A stored directory replaces none.
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        files.get(self._name(), path, overwrite=True, server=self._server())

    def store_object(self) -> None:
        # Snakemake marks the time of directories with a hidden file, which is stored with them.
        files.put(self.local_path(), self._name(), replicas=self.provider.replicas, follow_links=True, server=self._server())

    def remove(self) -> None:
        files.rm(self._name(), recursive=True, server=self._server())

    def touch(self) -> None:
        """Makes a new version with the same bytes."""
        name, server = self._name(), self._server()
        if self._stat().kind != "file":
            raise WorkflowError(f"{self.print_query} is a directory: only files can be touched")
        copy = f"{name}.{uuid.uuid4().hex}"
        files.cp(name, copy, server=server)
        files.mv(copy, name, server=server)

    def list_candidate_matches(self) -> Iterable[str]:
        above = get_constant_prefix(str(self.query), strip_incomplete_parts=True).removeprefix(_SCHEME).strip("/")
        try:
            entries = files.ls(above or "/", recursive=True, server=self._server())
        except FileNotFoundError:
            return []
        return [_SCHEME + entry.name for entry in entries]
