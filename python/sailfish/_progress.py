"""Displays of the progress of a job: on a terminal, in a notebook, or as lines."""

from __future__ import annotations

import importlib
import json
import sys
import time
from html import escape
from typing import IO, Any, Protocol

#: The beginning of the engine's lines about progress.
_BEGIN = '{"progress":'
_BAR = 24
#: Seconds between two lines of the display that is neither a terminal nor a notebook.
_LINE_EVERY = 2.0

#: Name, done, total.
Row = tuple[str, int, int]


class Display(Protocol):
    """A display of progress."""

    def show(self, rows: list[Row]) -> None: ...

    def say(self, text: str) -> None:
        """Shows a message."""

    def close(self) -> None: ...


def display_of(progress: bool | None) -> Display | None:
    """Returns the display for `progress`: None for False, else the notebook or the terminal if there is one, else lines for True."""
    if progress is False or sys.stderr is None:
        return None
    if _in_notebook():
        return Notebook()
    if sys.stderr.isatty():
        return Terminal(sys.stderr)
    return Lines(sys.stderr) if progress else None


def rows_of(line: str) -> list[Row] | None:
    """Returns the progress that a line of the engine reports; None for any other line."""
    if not line.startswith(_BEGIN):
        return None
    try:
        return [(row["name"], row["done"], row["total"]) for row in json.loads(line)["progress"]]
    except (ValueError, KeyError, TypeError):
        return None


def _in_notebook() -> bool:
    """Returns whether the program runs in a notebook, which is the case if IPython is imported and has a kernel."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _percent(done: int, total: int) -> int:
    return 100 * min(done, total) // total if total else 100


class Terminal:
    """A display on a terminal: one line, redrawn in place, with a bar for each unfinished phase."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._drawn = stream, False

    def show(self, rows: list[Row]) -> None:
        left = [row for row in rows if row[1] < row[2]] or rows[-1:]
        self._write("\r\x1b[K" + "  ".join(self._bar(row) for row in left[:2]))
        self._drawn = bool(left)

    @staticmethod
    def _bar(row: Row) -> str:
        percent = _percent(row[1], row[2])
        filled = _BAR * percent // 100
        return f"{row[0]} {'━' * filled}{'─' * (_BAR - filled)} {percent} %"

    def say(self, text: str) -> None:
        self._write(("\r\x1b[K" if self._drawn else "") + text + "\n")
        self._drawn = False

    def close(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Lines:
    """A display of one line every few seconds."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._last_at = stream, 0.0

    def show(self, rows: list[Row]) -> None:
        now = time.monotonic()
        left = [f"{name} {_percent(done, total)} %" for name, done, total in rows if done < total]
        if left and now - self._last_at >= _LINE_EVERY:
            self._last_at = now
            self.say("; ".join(left))

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        pass


class Notebook:
    """A display in a notebook: a table with bars below the cell."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, rows: list[Row]) -> None:
        shown: Any = importlib.import_module("IPython.display")
        cells = "".join(
            f'<tr><td>{escape(name)}</td><td><progress value="{done}" max="{max(total, 1)}"></progress></td>'
            f"<td>{_percent(done, total)} %</td></tr>"
            for name, done, total in rows
        )
        table = shown.HTML(f"<table>{cells}</table>")
        if self._handle is None:
            self._handle = shown.display(table, display_id=True)
        else:
            self._handle.update(table)

    def say(self, text: str) -> None:
        # The notebook shows the result, and an error carries the messages.
        pass

    def close(self) -> None:
        pass
