"""The stored files of this machine or of a cluster as an fsspec file system: `sailfish://NAME`. fsspec finds it by the entry point of this
package."""

from __future__ import annotations

from typing import Any

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from . import files


class SailfishFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Stored files, by the names of `sailfish files`. A written file gets its name when it is closed. `server`: the URL of the server of a
    cluster; without it, the files are those of `sailfish.files`."""

    protocol = "sailfish"
    cachable = False

    def __init__(self, *args: Any, server: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, server=server, **kwargs)
        self.server = server

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return str(path).removeprefix("sailfish://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"sailfish://{self._strip_protocol(name)}"

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        found = [_info(each) for each in files.ls(self._strip_protocol(path) or "/", server=self.server)]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        try:
            return _info(files.stat(name or "/", server=self.server))
        except FileNotFoundError:
            if name:
                raise
            return {"name": "", "size": 0, "type": "directory"}

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def modified(self, path: str) -> Any:
        return files.stat(self._strip_protocol(path), server=self.server).created

    created = modified

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        name = self._strip_protocol(path)
        if files.exists(name, server=self.server):
            raise FileExistsError(f"{name} exists already")
        files.mkdir(name, parents=create_parents, server=self.server)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        name = self._strip_protocol(path)
        if not exist_ok and files.exists(name, server=self.server):
            raise FileExistsError(f"{name} exists already")
        files.mkdir(name, parents=True, server=self.server)

    def rm_file(self, path: str) -> None:
        files.rm(self._strip_protocol(path), server=self.server)

    def rmdir(self, path: str) -> None:
        files.rm(self._strip_protocol(path), server=self.server)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = path if isinstance(path, list) else [path]
        names = [each for one in paths for each in self.expand_path(one)] if any("*" in str(each) for each in paths) else paths
        files.rm(*(self._strip_protocol(each) for each in names), recursive=recursive, server=self.server)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        files.mv(self._strip_protocol(path1), self._strip_protocol(path2), server=self.server)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        above = target.rpartition("/")[0]
        if above:
            files.mkdir(above, parents=True, server=self.server)
        if files.stat(source, server=self.server).kind == "directory":
            files.mkdir(target, parents=True, server=self.server)
        else:
            files.cp(source, target, server=self.server)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        name = self._strip_protocol(path)
        if mode == "wb":
            return files.open(name, "wb", server=self.server)
        if mode != "rb":
            raise ValueError(f"mode {mode!r}: stored files are opened with rb or wb")
        return _RangeFile(self, name, mode, block_size or "default", **{**kwargs, "cache_type": kwargs.get("cache_type", "readahead")})


class _RangeFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read by ranges, all of one version."""

    def __init__(self, fs: SailfishFileSystem, path: str, *args: Any, **kwargs: Any) -> None:
        found = files.stat(path, server=fs.server)
        if found.kind != "file":
            raise IsADirectoryError(f"{path} is a directory")
        self._version = path if files.is_versioned(path) else f"{found.name}@{found.version}"
        super().__init__(fs, path, *args, size=found.bytes, **kwargs)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return files.read_range(self._version, start, end, server=self.fs.server)


def _info(found: files.StoredFile) -> dict[str, Any]:
    return {"name": found.name, "size": found.bytes, "type": found.kind, "version": found.version, "created": found.created}
