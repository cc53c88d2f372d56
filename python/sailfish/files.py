"""Files with versions and checksums that this machine or a cluster stores: `sailfish files`, from Python.

import sailfish as sf

sf.files.put("logs", "logs")
with sf.files.open("logs/a.txt", "r") as file:
    print(file.readline())

Names, versions and guarantees are those of `docs/files.md`. With fsspec the same files have URLs, `sailfish://logs/a.txt`, for pandas,
pyarrow, DuckDB and others. `server=URL` means the files of a cluster; without it they are those of the server in `SAILFISH_SERVER`, in a
function of a cluster job those of its cluster, or else those of this machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from ._engine import program

__all__ = ["FilesFailed", "StoredFile", "cp", "exists", "get", "ls", "mkdir", "mv", "open", "put", "rm", "stat", "versions"]

#: Exit code of the program for a request that it refuses.
_REFUSED = 2
#: Bytes that are read and dropped rather than asked for again.
_SKIPPED_MAX = 1 << 20
_BUFFER_BYTES = 1 << 20
#: A name, and perhaps its version.
_VERSION = re.compile(r"(.*?)(@[0-9]+)?", re.DOTALL)


class FilesFailed(OSError):
    """Error of a command on stored files. The message is the message of the program."""

    __module__ = "sailfish.files"


@dataclass(frozen=True)
class StoredFile:
    """A file or a directory in a list.

    `name` is its whole name, `kind` is `"file"` or `"directory"`, `version` the version that made it."""

    name: str
    kind: str
    bytes: int
    version: int
    user: str
    created: datetime


def put(
    source: str | os.PathLike[str],
    name: str,
    *,
    parts: int | None = None,
    records: str | None = None,
    keep_versions: int = 1,
    ttl: str | None = None,
    follow_links: bool = False,
    skip: bool = False,
    replicas: int | None = None,
    server: str | None = None,
) -> int:
    """Stores a file or a directory under a name, as one version. Returns the version. `ttl`: remove the name after this time, such as "7d".
    `replicas`: number of nodes of a cluster that get each part.

    Errors: `FilesFailed`; `FileNotFoundError` if there is no source."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    words = ["put", f"--keep-versions={keep_versions}"]
    words += [] if ttl is None else [f"--ttl={ttl}"]
    words += [] if parts is None else [f"--parts={parts}"]
    words += [] if records is None else [f"--records={records}"]
    words += [] if replicas is None else [f"--replicas={replicas}"]
    words += ["--follow-links"] * follow_links + ["--skip"] * skip
    version: int = json.loads(_run([*words, "--json", "--", str(path.absolute()), name], server))["version"]
    return version


def get(name: str, target: str | os.PathLike[str] | None = None, *, overwrite: bool = False, server: str | None = None) -> Path:
    """Writes a stored file or directory to a path, verified. Returns the path. Without a target it is the last part of the name, in the
    current directory.

    Errors: `FilesFailed`, also if the target exists; `FileNotFoundError` if there is no such name."""
    path = Path(target if target is not None else _split(name)[0].rpartition("/")[2])
    _run(["get", *["--overwrite"] * overwrite, "--", name, str(path)], server)
    return path


def ls(name: str = "/", *, recursive: bool = False, server: str | None = None) -> list[StoredFile]:
    """Lists a directory, by name. A file is listed as itself.

    Errors: `FileNotFoundError` if there is no such name."""
    try:
        printed = _run(["ls", "--json", *["--recursive"] * recursive, "--", name], server)
    except FileNotFoundError:
        if _split(name)[0]:
            raise
        return []
    return [_stored(json.loads(line)) for line in printed.decode().splitlines()]


def stat(name: str, *, server: str | None = None) -> StoredFile:
    """Returns a file or a directory. Errors: `FileNotFoundError`."""
    return _stored(json.loads(_run(["stat", "--json", "--", name], server)))


def exists(name: str, *, server: str | None = None) -> bool:
    """Returns whether there is a file or a directory of this name."""
    try:
        stat(name, server=server)
    except FileNotFoundError:
        return False
    return True


def versions(name: str = "/", *, server: str | None = None) -> list[int]:
    """Returns the versions in which a name or something below it changed, newest first."""
    printed = _run(["versions", "--json", "--", name], server).decode()
    return [json.loads(line)["version"] for line in printed.splitlines()]


def rm(*names: str, recursive: bool = False, server: str | None = None) -> None:
    """Removes files, and directories with `recursive`. Errors: `FilesFailed`, `FileNotFoundError`."""
    _run(["rm", *["--recursive"] * recursive, "--", *names], server)


def mv(source: str, target: str, *, server: str | None = None) -> None:
    """Renames a file or a directory. Errors: `FilesFailed`, `FileNotFoundError`."""
    _run(["mv", "--", source, target], server)


def cp(source: str, target: str, *, server: str | None = None) -> None:
    """Copies a file or a directory; the copy shares its bytes. Errors: `FilesFailed`, `FileNotFoundError`."""
    _run(["cp", "--", source, target], server)


def mkdir(*names: str, parents: bool = False, server: str | None = None) -> None:
    """Makes directories. Errors: `FilesFailed`, `FileNotFoundError`."""
    _run(["mkdir", *["--parents"] * parents, "--", *names], server)


def open(name: str, mode: str = "rb", *, encoding: str = "utf-8", newline: str | None = None, server: str | None = None) -> IO[Any]:
    """Opens a stored file: `r` or `rb` to read a version that stays the same, `w` or `wb` to write a new one.

    A written file gets its name when it is closed, whole; if the `with` block fails, nothing is stored. Errors: `FileNotFoundError`,
    `FilesFailed`, `ValueError` for another mode."""
    if mode in ("r", "rb", "rt"):
        raw: io.RawIOBase = _Reader(name, server)
        binary: Any = io.BufferedReader(raw, _BUFFER_BYTES)
    elif mode in ("w", "wb", "wt"):
        binary = _Writer(name, server)
    else:
        raise ValueError(f"mode {mode!r}: stored files are opened with r, rb, w or wb")
    if mode.endswith("b"):
        opened: IO[Any] = binary
        return opened
    wrapper = _TextWriter if mode.startswith("w") else io.TextIOWrapper
    return wrapper(binary, encoding=encoding, newline=newline)


def _split(name: str) -> tuple[str, str]:
    """Returns the path of a name, and its version with `@`, or nothing."""
    found = _VERSION.fullmatch(name.removeprefix("files:"))
    assert found is not None
    return found[1].strip("/"), found[2]


def is_versioned(name: str) -> bool:
    """Returns whether a name is at a version. For file systems."""
    return _split(name)[1] != ""


def _stored(row: dict[str, Any]) -> StoredFile:
    created = datetime.fromtimestamp(row.get("created_ns", 0) / 1e9, timezone.utc)
    return StoredFile(row["path"], row["kind"], row["bytes"], row.get("version", 0), row.get("user", ""), created)


def _command(words: list[str], server: str | None) -> list[str]:
    # Options stand before `--`.
    return [program(), "files", words[0], *([] if server is None else [f"--server={server}"]), *words[1:]]


def _run(words: list[str], server: str | None) -> bytes:
    ran = subprocess.run(_command(words, server), stdin=subprocess.DEVNULL, capture_output=True)
    if ran.returncode != 0:
        raise _failure(ran.returncode, ran.stderr)
    return ran.stdout


def _failure(code: int, stderr: bytes) -> OSError:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line]
    message = "\n".join(lines).removeprefix("sailfish: ") or f"sailfish exited with code {code}"
    is_missing = code == _REFUSED and ("there is no file or directory" in message or "no files are stored in" in message)
    return FileNotFoundError(message) if is_missing else FilesFailed(message)


def _cat(name: str, server: str | None, offset: int, length: int | None = None) -> subprocess.Popen[bytes]:
    words = ["cat", f"--offset={offset}", *([] if length is None else [f"--length={length}"]), "--", name]
    return subprocess.Popen(_command(words, server), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read_range(name: str, start: int, end: int, server: str | None = None) -> bytes:
    """Returns the bytes of a range of a file; fewer at its end. For file systems; programs use `open`."""
    child = _cat(name, server, start, max(0, end - start))
    out, stderr = child.communicate()
    if child.returncode != 0:
        raise _failure(child.returncode, stderr)
    return out


class _Reader(io.RawIOBase):
    """A stored file that is read: the bytes come from a program that reads ahead; a seek starts another one."""

    def __init__(self, name: str, server: str | None) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._server = server
        found = stat(name, server=server)
        if found.kind != "file":
            raise IsADirectoryError(f"{name} is a directory")
        self.name = name
        # All reads see one version.
        self._version = f"{found.name}{_split(name)[1] or f'@{found.version}'}"
        self._bytes = found.bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._bytes}[whence]
        place = begin + offset
        if place < 0:
            raise ValueError(f"negative seek position {place}")
        ahead = place - self._at
        if self._child is not None and 0 < ahead <= _SKIPPED_MAX:
            self._skip(ahead)
        elif ahead != 0:
            self._stop()
        self._at = place
        return place

    def _skip(self, count: int) -> None:
        assert self._child is not None and self._child.stdout is not None
        while count > 0 and (read := self._child.stdout.read(count)):
            count -= len(read)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._at >= self._bytes or len(view) == 0:
            return 0
        if self._child is None:
            self._child = _cat(self._version, self._server, self._at)
        assert self._child.stdout is not None
        read = self._child.stdout.read(min(len(view), self._bytes - self._at))
        if not read:
            _, stderr = self._child.communicate()
            code, self._child = self._child.returncode, None
            raise _failure(code, stderr)
        view[: len(read)] = read
        self._at += len(read)
        return len(read)

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def close(self) -> None:
        if not self.closed:
            self._stop()
        super().close()


class _Writer(io.RawIOBase):
    """A stored file that is written: it gets its name when it is closed."""

    def __init__(self, name: str, server: str | None) -> None:
        self.name = name
        self._at = 0
        self._is_given_up = True
        words = _command(["put", "--", "-", name], server)
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._is_given_up = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        assert self._child.stdin is not None
        view = memoryview(data).cast("B")
        try:
            self._child.stdin.write(view)
        except BrokenPipeError:
            self._is_given_up = True
            _, stderr = self._child.communicate()
            raise _failure(self._child.returncode, stderr) from None
        self._at += len(view)
        return len(view)

    def give_up(self) -> None:
        """Stores nothing: the program ends before it sees the end of its input."""
        if not self.closed and not self._is_given_up:
            self._is_given_up = True
            self._child.terminate()
            with contextlib.suppress(BrokenPipeError):
                self._child.communicate()
        self.close()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None:
            self.give_up()
        self.close()

    def __del__(self) -> None:
        # A file that nobody closed is not whole.
        if not self.closed:
            self.give_up()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._is_given_up:
            return
        _, stderr = self._child.communicate()
        if self._child.returncode != 0:
            raise _failure(self._child.returncode, stderr)


class _TextWriter(io.TextIOWrapper):
    """Text for a stored file; nothing is stored if the `with` block fails, or if nobody closes it."""

    def _give_up(self) -> None:
        if not self.closed:
            self.detach().give_up()  # type: ignore[attr-defined]

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None:
            self._give_up()
        else:
            self.close()

    def __del__(self) -> None:
        # A detached one raises.
        with contextlib.suppress(ValueError):
            self._give_up()
