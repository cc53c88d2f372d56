"""The stored files of this machine as an fsspec file system: `sailfish://NAME`. fsspec finds it by the entry point of this package."""

from __future__ import annotations

from typing import Any

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from . import files


class SailfishFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Stored files, by the names of `sailfish files`. A written file gets its name when it is closed."""

    protocol = "sailfish"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return str(path).removeprefix("sailfish://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"sailfish://{self._strip_protocol(name)}"

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        found = [_info(each) for each in files.ls(self._strip_protocol(path) or "/")]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        try:
            return _info(files.stat(name or "/"))
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
        return files.stat(self._strip_protocol(path)).created

    created = modified

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        name = self._strip_protocol(path)
        if files.exists(name):
            raise FileExistsError(f"{name} exists already")
        files.mkdir(name, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        name = self._strip_protocol(path)
        if not exist_ok and files.exists(name):
            raise FileExistsError(f"{name} exists already")
        files.mkdir(name, parents=True)

    def rm_file(self, path: str) -> None:
        files.rm(self._strip_protocol(path))

    def rmdir(self, path: str) -> None:
        files.rm(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = path if isinstance(path, list) else [path]
        names = [each for one in paths for each in self.expand_path(one)] if any("*" in str(each) for each in paths) else paths
        files.rm(*(self._strip_protocol(each) for each in names), recursive=recursive)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        files.mv(self._strip_protocol(path1), self._strip_protocol(path2))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        above = target.rpartition("/")[0]
        if above:
            files.mkdir(above, parents=True)
        if files.stat(source).kind == "directory":
            files.mkdir(target, parents=True)
        else:
            files.cp(source, target)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        name = self._strip_protocol(path)
        if mode == "wb":
            return files.open(name, "wb")
        if mode != "rb":
            raise ValueError(f"mode {mode!r}: stored files are opened with rb or wb")
        return _RangeFile(self, name, mode, block_size or "default", **{**kwargs, "cache_type": kwargs.get("cache_type", "readahead")})


class _RangeFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read by ranges, all of one version."""

    def __init__(self, fs: SailfishFileSystem, path: str, *args: Any, **kwargs: Any) -> None:
        found = files.stat(path)
        if found.kind != "file":
            raise IsADirectoryError(f"{path} is a directory")
        self._version = path if files.is_versioned(path) else f"{found.name}@{found.version}"
        super().__init__(fs, path, *args, size=found.bytes, **kwargs)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return files.read_range(self._version, start, end)


def _info(found: files.StoredFile) -> dict[str, Any]:
    return {"name": found.name, "size": found.bytes, "type": found.kind, "version": found.version, "created": found.created}
