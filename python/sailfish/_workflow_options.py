"""Options of workflow steps, and checks of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypedDict

from ._workflow_files import WorkflowStep


class StepOptions(TypedDict, total=False):
    """Options of a step. Their meaning is that of the keys of workflow files."""

    after: Sequence[WorkflowStep | str]
    keep: bool
    env: Mapping[str, str]
    cores: int
    memory: str | int
    arch: str
    resources: Mapping[str, int]
    retries: int
    timeout: str | int
    network: bool
    cache: bool
    in_place: bool
    reads: Sequence[str | os.PathLike[str]]
    environment: Sequence[str | os.PathLike[str]]
    views: Sequence[str]
    streams: Sequence[str | os.PathLike[str] | WorkflowStep]


#: The types of the options that stay as they are, with their names in errors.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "keep": ((bool,), "True or False"),
    "cores": ((int,), "a whole number"),
    "memory": ((str, int), "a text such as '2G', or a number of bytes"),
    "arch": ((str,), "a text such as 'x86_64'"),
    "retries": ((int,), "a whole number"),
    "timeout": ((str, int), "a text such as '90s', or a number of seconds"),
    "network": ((bool,), "True or False"),
    "cache": ((bool,), "True or False"),
    "in_place": ((bool,), "True or False"),
}


def options_of(step: str, options: StepOptions, steps: Collection[str]) -> dict[str, Any]:
    """Returns the options of a step as keys of a workflow file. `steps`: the names of the steps before it. Errors: `TypeError` and
    `ValueError`."""
    table: dict[str, Any] = {}
    for name, value in options.items():
        if name not in StepOptions.__annotations__:
            raise TypeError(f"the step {step!r}: there is no option {name!r}: choose {', '.join(StepOptions.__annotations__)}")
        if value is None:
            continue
        if name == "after":
            table[name] = _names(step, value, steps)
        elif name == "env":
            table[name] = _variables(step, value)
        elif name == "resources":
            table[name] = checked_resources(f"the step {step!r}", value)
        elif name in ("reads", "environment"):
            table[name] = [_path(step, name, each) for each in checked_list(step, name, value)]
        elif name not in ("views", "streams"):
            table[name] = _plain(step, name, value)
    return table


def views_of(step: str, options: StepOptions) -> list[str]:
    """Returns the stored files that a step reads without copies. Errors: `TypeError` and `ValueError`."""
    views = [checked_file(step, "views", each) for each in checked_list(step, "views", options.get("views") or ())]
    plain = [each for each in views if not each.startswith("files:")]
    if plain:
        raise ValueError(f"the step {step!r}: views has {plain[0]!r}, which is no stored file: give 'files:NAME', or move it to inputs")
    return views


def _plain(step: str, name: str, value: object) -> Any:
    types, expected = _TYPES[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"the step {step!r}: {name}={value!r:.200} must be {expected}")
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        raise ValueError(f"the step {step!r}: {name}={value!r} is negative")
    if name == "timeout" and isinstance(value, int):
        return f"{value}s"
    return str(value) if name == "memory" else value


def _names(step: str, given: object, steps: Collection[str]) -> list[str]:
    names = []
    for each in checked_list(step, "after", given):
        name = each.name if isinstance(each, WorkflowStep) else each
        if not isinstance(name, str):
            raise TypeError(f"the step {step!r}: after has {each!r:.200}, which is neither a step nor the name of one")
        if name not in steps:
            raise ValueError(f"the step {step!r}: after has {name!r}, and there is no such step before it")
        names.append(name)
    return names


def _variables(step: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise TypeError(f"the step {step!r}: env={given!r:.200} must map names to texts, such as {{'LEVEL': '3'}}")
    wrong = [name for name, value in given.items() if not isinstance(name, str) or not isinstance(value, str)]
    if wrong:
        raise TypeError(f"the step {step!r}: the variable {wrong[0]!r} in env must have a text as its name and as its value")
    return dict(given)


def checked_resources(of: str, given: object) -> dict[str, int]:
    """Returns the amounts of resources by name. Errors: `TypeError` and `ValueError`."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{of}: resources={given!r:.200} must map names to amounts, such as {{'gpu': 1}}")
    for name, amount in given.items():
        if not isinstance(name, str) or not isinstance(amount, int) or isinstance(amount, bool):
            raise TypeError(f"{of}: the resource {name!r} must have a text as its name and a whole number as its amount")
        if not 1 <= amount <= 1_000_000:
            raise ValueError(f"{of}: the resource {name!r} has the amount {amount}: give 1 to 1000000")
    return dict(given)


def checked_list(step: str, name: str, given: Any) -> list[Any]:
    """Returns the values of an argument as a list. Error: `TypeError` for a single value."""
    if isinstance(given, (str, bytes, os.PathLike, WorkflowStep)) or not hasattr(given, "__iter__"):
        raise TypeError(f"the step {step!r}: {name}={given!r:.200} must be a list")
    return list(given)


def _path(step: str, name: str, given: object) -> str:
    if not isinstance(given, (str, os.PathLike)) or not isinstance(os.fspath(given), str):
        raise TypeError(f"the step {step!r}: {name} has {given!r:.200}, which is no path")
    return str(os.fspath(given))


def checked_file(step: str, name: str, given: object) -> str:
    """Returns the path of a file without needless parts. Errors: `TypeError` and `ValueError`."""
    path = PurePosixPath(_path(step, name, given))
    if not path.name or ".." in path.parts:
        raise ValueError(
            f"the step {step!r}: {name} has {str(given)!r}: give a path of a file below the directory of the workflow, without '..', or an "
            "absolute path"
        )
    return str(path)
