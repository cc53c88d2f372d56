"""The command line that the examples share: make an input, or run the job on one."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import sailfish as sf


class Generate(Protocol):
    def __call__(self, directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None: ...


def line(item: tuple[Any, Any]) -> str:
    """Returns a pair as a line of text; every engine that we compare writes it so."""
    key, value = item
    return f"{key}\t{value}"


def size_of(text: str) -> int:
    """Returns the bytes of `100M`, `2G`, `4096`; the suffixes are powers of 1000."""
    units = {"K": 10**3, "M": 10**6, "G": 10**9}
    unit = units.get(text[-1:].upper())
    return int(text) if unit is None else int(float(text[:-1]) * unit)


def main(generate: Generate, flow: Callable[[Path], sf.Dataset[Any]]) -> None:
    """Runs an example as a program: makes an input, or runs the job on one."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(inspect.getmodule(flow)), formatter_class=argparse.RawTextHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    making = actions.add_parser("generate", help="make an input")
    making.add_argument("directory", type=Path)
    making.add_argument("--size", type=size_of, default=size_of("100M"), help="bytes of text, as in 100M (the default)")
    making.add_argument("--seed", type=int, default=1)
    making.add_argument("--compress", action="store_true", help="gzip the files; --size counts what is in them")
    running = actions.add_parser("run", help="run the job")
    running.add_argument("directory", type=Path, help="what `generate` made")
    running.add_argument("--output", type=Path, required=True)
    running.add_argument("--engine", default="local", help="`local`, or the URL of a server")
    running.add_argument("--memory", help="budget of the engine, as in 1G")
    arguments = parser.parse_args()
    if arguments.action == "generate":
        generate(arguments.directory, arguments.size, arguments.seed, arguments.compress)
        return
    result = flow(arguments.directory).map(line).write_text(arguments.output, engine=arguments.engine, memory=arguments.memory)
    print(result)
