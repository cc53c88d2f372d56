"""Steps of workflows and the files that they write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ._workflow import Workflow


class WorkflowFile(os.PathLike[str]):
    """A file that a step of a workflow writes. As an input of another step it makes that step wait for its own. It is also the path of the
    file, for `open` and other functions.

    ``str(file)`` is `name`: the path of the file in the directory of a step, as commands need it.
    """

    def __init__(self, step: WorkflowStep, given: str) -> None:
        #: The step that writes the file.
        self.step = step
        #: The path of the file in the directory of a step that reads or writes it.
        self.name = local_name(given)
        # The path as the workflow file has it.
        self._given = given

    @property
    def path(self) -> Path:
        """The absolute path of the file. The file exists when the workflow has succeeded, unless it was temporary."""
        return self.step.workflow.directory / self._given

    def result(self) -> Path:
        """Waits until the workflow has ended, and returns the path of the file. Errors: `JobFailed`; `RuntimeError` if the workflow was not
        started; `FileNotFoundError` for a temporary file."""
        self.step.workflow._wait(f"the file {self.name!r}")
        if not self.path.exists():
            raise FileNotFoundError(
                f"the file {self.name!r} of the step {self.step.name!r} was removed when the workflow had succeeded, because other steps "
                "read it: add keep=True to the step"
            )
        return self.path

    def open(self, mode: str = "r", encoding: str | None = None) -> IO[Any]:
        """Waits as `result`, and opens the file for reading. `mode`: ``"r"`` for text or ``"rb"`` for bytes. Errors: as `result`;
        `ValueError` for another mode."""
        if mode not in ("r", "rt", "rb"):
            raise ValueError(f"mode={mode!r}: the file {self.name!r} of the step {self.step.name!r} can be opened with 'r' or 'rb'")
        return self.result().open(mode, encoding=encoding)

    def read_text(self, encoding: str | None = None) -> str:
        """Waits as `result`, and returns the content of the file as text. Errors: as `result`."""
        return self.result().read_text(encoding)

    def read_bytes(self) -> bytes:
        """Waits as `result`, and returns the content of the file. Errors: as `result`."""
        return self.result().read_bytes()

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<sailfish.WorkflowFile {self.name!r} of the step {self.step.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the function uses the file {self.name!r} of the step {self.step.name!r}: pass it to the function as an argument")


class WorkflowStep:
    """A step of a workflow, made by `Workflow.command`, `Workflow.function` or `Workflow.step`. As an input of another step it stands for
    its only output. Calling the step of a function calls the function, here and now."""

    def __init__(self, workflow: Workflow, name: str, outputs: list[str], function: Callable[..., Any] | None = None) -> None:
        self.workflow = workflow
        self.name = name
        #: The files that the step writes, in the order in which they were declared.
        self.outputs = tuple(WorkflowFile(self, given) for given in outputs)
        self._function = function

    def output(self, name: str | None = None) -> WorkflowFile:
        """Returns an output by its name, or the only output. Error: `ValueError` if there is none of this name, or more than one."""
        found = [file for file in self.outputs if name is None or name in (file.name, file._given)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(repr(file.name) for file in self.outputs) or "no outputs"
        if name is not None:
            raise ValueError(f"the step {self.name!r} has no output {name!r}: it has {known}")
        raise ValueError(f"the step {self.name!r} has {len(found)} outputs, not one: name one of its outputs ({known})")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._function is None:
            raise TypeError(f"the step {self.name!r} runs a command and cannot be called")
        return self._function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<sailfish.WorkflowStep {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # In a function that calls it, the step of a function is that function.
        if self._function is None:
            raise TypeError(f"the function uses the step {self.name!r}: pass an output of the step as an argument")
        return _function_of, (self._function,)


def _function_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def local_name(given: str) -> str:
    """Returns the path of a file in the directory of a step: a relative path as it is, for an absolute one the name of the file."""
    path = PurePosixPath(given)
    return path.name if path.is_absolute() else str(path)
