"""Workflows of commands and functions, which read and write files."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _engine
from ._progress import display_of
from ._run import toml
from ._workflow_files import WorkflowFile, WorkflowStep, local_name
from ._workflow_functions import save_function
from ._workflow_options import StepOptions, checked_file, checked_list, checked_resources, options_of, views_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: An input of a step: a path, a file of the workflow, or a step with one output.
Input = str | os.PathLike[str] | WorkflowStep


class Workflow:
    """Steps that read and write files. A step is a command or a function of Python. The order of the steps follows from their files: a step
    waits for the steps whose outputs it reads.

    Relative paths start at ``directory`` and stay below it. A step runs in a directory of its own, where each of its files has the name
    that the step gives it; an absolute path has its file name there. Only the declared outputs are taken. They appear together when the
    step has succeeded. An output that other steps read is temporary, unless ``keep=True``.

    >>> import sailfish as sf
    >>> _ = open("book", "w").write("to be or not to be")
    >>> wf = sf.Workflow("words")
    >>> words = wf.command("words", "tr ' ' '\\\\n'", stdin="book", stdout="list")
    >>> counts = wf.command("counts", "sort | uniq -c", stdin=words, stdout="counts")
    >>> _ = wf.run()
    >>> counts.output().read_text().split()[:4]
    ['2', 'be', '1', 'not']
    """

    def __init__(self, name: str, directory: str | os.PathLike[str] = ".") -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name={name!r:.200} must be a text that is not empty")
        self.name = name
        #: The directory at which relative paths start.
        self.directory = Path(os.path.realpath(os.path.expanduser(directory)))
        self._steps: dict[str, WorkflowStep] = {}
        self._tables: dict[str, Callable[[], dict[str, Any]]] = {}
        self._writers: dict[Path, str] = {}
        self._run: WorkflowRun | None = None

    @property
    def steps(self) -> tuple[WorkflowStep, ...]:
        """The steps, in the order in which they were added."""
        return tuple(self._steps.values())

    def command(
        self,
        name: str,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        stdin: Input | None = None,
        stdout: str | os.PathLike[str] | None = None,
        inputs: Sequence[Input] = (),
        outputs: Sequence[str | os.PathLike[str]] = (),
        **options: Unpack[StepOptions],
    ) -> WorkflowStep:
        """Adds a step that runs a command: a text for ``sh -eu -c``, or a list of words, the program and its arguments. A file of the
        workflow among the words becomes an input.

        ``stdin`` and ``stdout`` are an input and an output for the standard streams. Errors: `ValueError` and `TypeError`, which name the
        step.
        """
        self._check_name(name)
        read = [self._input(name, each, "inputs") for each in checked_list(name, "inputs", inputs)]
        table: dict[str, Any] = {}
        if isinstance(command, str):
            table["command"] = command
        else:
            table["words"] = [self._word(name, word, read) for word in checked_list(name, "command", command)]
        if not command:
            raise ValueError(f"the step {name!r} has no command")
        step, streams = self._add(name, stdin, stdout, read, outputs, options)
        self._tables[name] = lambda: {"name": name, **table, **streams}
        return step

    def function(
        self,
        function: Callable[..., None],
        *arguments: Any,
        name: str | None = None,
        stdin: Input | None = None,
        stdout: str | os.PathLike[str] | None = None,
        inputs: Sequence[Input] = (),
        outputs: Sequence[str | os.PathLike[str]] = (),
        modules: Sequence[ModuleType] = (),
        **options: Unpack[StepOptions],
    ) -> WorkflowStep:
        """Adds a step that calls ``function(*arguments, *outputs)`` in a process of its own. ``name``: by default the name of the function.

        A file of the workflow, a step with one output or a `pathlib.Path` among the arguments, also in lists, tuples and dicts, becomes an
        input; the function gets its path in the directory of the step. Other arguments stay as they are, texts too. After the arguments
        the function gets the path of each of its ``outputs``. It returns nothing.

        The function is saved when the workflow is saved or run. ``modules``: modules to save with it, besides those that it is seen to
        use. Errors: as `command`; `CannotSend` when the workflow is saved or run.
        """
        name = _name_of(function) if name is None else name
        self._check_name(name)
        _check_function(name, function)
        if options.get("in_place"):
            raise ValueError(
                f"the step {name!r}: in_place is for commands; a function gets the paths of its files in a directory of its own"
            )
        read = [self._input(name, each, "inputs") for each in checked_list(name, "inputs", inputs)]
        passed = tuple(self._argument(name, each, read) for each in arguments)
        for module in checked_list(name, "modules", modules):
            if not isinstance(module, ModuleType):
                raise TypeError(f"the step {name!r}: modules has {module!r:.200}, which is no imported module")
        places = [Path(local_name(checked_file(name, "outputs", each))) for each in checked_list(name, "outputs", outputs)]
        _check_arguments(name, function, (*passed, *places))
        step, streams = self._add(name, stdin, stdout, read, outputs, options, function)

        def table() -> dict[str, Any]:
            saved = save_function(name, function, (*passed, *places), modules, self.directory)
            env = {**saved.env, **streams.get("env", {})}
            return {"name": name, "words": saved.words, **streams, "env": env, "reads": [*streams.get("reads", ()), *saved.reads]}

        self._tables[name] = table
        return step

    def job(
        self,
        name: str,
        *,
        inputs: Sequence[Input],
        output: str | os.PathLike[str],
        partitions: int = 1,
        after: Sequence[WorkflowStep | str] = (),
        env: Mapping[str, str] | None = None,
        keep: bool = False,
        cache: bool = True,
        **keys: str | int | bool | Sequence[str],
    ) -> WorkflowStep:
        """Adds a step that is a MapReduce job. ``output``: a directory, in which the step has ``partitions`` outputs, ``part-00000`` and so
        on; ``keep``: it stays, although steps read all of them. ``keys``: the other keys of ``[step.job]`` in workflow files, such as
        ``mapper`` and ``reducer``. Errors: `ValueError` and `TypeError`, which name the step; mistakes in the keys are found by `run`.
        """
        self._check_name(name)
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            raise ValueError(f"the step {name!r}: partitions={partitions!r:.200} must be a whole number from 1 on")
        read = [self._input(name, each, "inputs") for each in checked_list(name, "inputs", inputs)]
        directory = checked_file(name, "output", output)
        parts = [f"{directory}/part-{part:05}" for part in range(partitions)]
        options: StepOptions = {"after": after, "env": env or {}, "keep": keep, "cache": cache}
        step, table = self._add(name, None, None, read, parts, options)
        del table["outputs"]
        job = {"output": directory, "partitions": partitions, **keys}
        self._tables[name] = lambda: {"name": name, **table, "job": job}
        return step

    def step(
        self,
        *arguments: Any,
        name: str | None = None,
        stdin: Input | None = None,
        stdout: str | os.PathLike[str] | None = None,
        inputs: Sequence[Input] = (),
        outputs: Sequence[str | os.PathLike[str]] = (),
        modules: Sequence[ModuleType] = (),
        **options: Unpack[StepOptions],
    ) -> Callable[[Callable[..., None]], WorkflowStep]:
        """Returns a decorator that adds a function as a step, as `function` does. The decorated name is the step."""
        if len(arguments) == 1 and not options and not outputs and inspect.isfunction(arguments[0]):
            raise TypeError(f"the decorator of {arguments[0].__name__} needs parentheses: @workflow.step(...)")

        def add(function: Callable[..., None]) -> WorkflowStep:
            return self.function(
                function,
                *arguments,
                name=name,
                stdin=stdin,
                stdout=stdout,
                inputs=inputs,
                outputs=outputs,
                modules=modules,
                **options,
            )

        return add

    def to_toml(self) -> str:
        """Returns the workflow as the text of a workflow file for ``sailfish workflow run``. Writes the functions of its steps below
        ``.sailfish/steps`` in the directory of the workflow. Error: `CannotSend`."""
        tables = (f"\n[[step]]\n{toml(table())}" for table in self._tables.values())
        return toml({"name": self.name}) + "".join(tables)

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes the workflow file and returns its path. ``path``: by default ``NAME.toml`` in the directory of the workflow. Errors: as
        `to_toml`; `ValueError` for a path in another directory, because relative paths start at the directory of the file."""
        given = Path(self.directory, f"{self.name}.toml") if path is None else Path(os.path.abspath(os.path.expanduser(path)))
        if given.parent.resolve() != self.directory:
            raise ValueError(
                f"{given} is not in {self.directory}, the directory of the workflow {self.name!r}: save it there, because relative paths "
                "start at the directory of the file"
            )
        given.write_text(self.to_toml(), encoding="utf-8")
        return given

    def run(
        self,
        *,
        slots: int | None = None,
        resources: Mapping[str, int] | None = None,
        server: str | None = None,
        state: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> WorkflowRun:
        """Runs all steps and waits until they have ended.

        ``slots``: the number of programs that run at once on this machine; by default its cores. ``resources``: the generic resources of
        this machine, such as ``{"gpu": 1}``. ``server``: the URL of a server whose nodes run the steps; they must see the files, and the
        interpreter of this program, under the same paths. ``state``: the directory of the state on this machine. Errors: `JobFailed`, with
        the name of the failed step and the text that its program wrote to standard error; `CannotSend`; `EngineMissing`;
        `KeyboardInterrupt`, raised after all processes have ended.
        """
        return self.start(slots=slots, resources=resources, server=server, state=state, progress=progress).wait()

    def start(
        self,
        *,
        slots: int | None = None,
        resources: Mapping[str, int] | None = None,
        server: str | None = None,
        state: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> WorkflowRun:
        """Starts all steps and returns at once. The arguments are those of `run`. `WorkflowRun.wait` and `WorkflowFile.result` wait until
        the steps have ended. The run is stopped when the thread that started it ends. Errors: `RuntimeError` if the workflow already
        runs; `CannotSend`; `EngineMissing`."""
        if self._run is not None and not self._run.done():
            raise RuntimeError(f"the workflow {self.name!r} already runs: wait until it has ended")
        if server is not None and (slots is not None or resources is not None or state is not None):
            raise ValueError(
                f"the workflow {self.name!r}: slots, resources and state are of a run on this machine, not on server={server!r}"
            )
        options = {"--slots": slots, "--server": server, "--state": None if state is None else os.fspath(state)}
        words = [f"{option}={value}" for option, value in options.items() if value is not None]
        amounts = checked_resources(f"the workflow {self.name!r}", resources or {})
        words += [f"--resource={name}={amount}" for name, amount in amounts.items()]
        self._run = WorkflowRun(self, words, progress, server)
        return self._run

    def _wait(self, what: str) -> None:
        if self._run is None:
            raise RuntimeError(f"{what} is not there yet: call run() or start() of the workflow {self.name!r} first")
        self._run.wait()

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"the step {name!r:.200} needs a name that is a text and not empty")
        if name in self._steps:
            raise ValueError(f"the workflow {self.name!r} already has a step {name!r}: give another name")

    def _input(self, step: str, given: object, what: str) -> str:
        """Returns the path of an input, as the workflow file has it."""
        if isinstance(given, WorkflowStep):
            given = given.output()
        if not isinstance(given, WorkflowFile):
            return checked_file(step, what, given)
        if given.step.workflow is not self:
            raise ValueError(
                f"the step {step!r} reads the file {given.name!r} of another workflow, {given.step.workflow.name!r}: run that workflow "
                "first and give the path of the file"
            )
        return given._given

    def _word(self, step: str, word: object, read: list[str]) -> str:
        if not isinstance(word, (WorkflowFile, WorkflowStep)):
            if not isinstance(word, (str, os.PathLike)):
                raise TypeError(f"the step {step!r}: the command has {word!r:.200}, which is neither a text nor a file")
            return str(os.fspath(word))
        read.append(self._input(step, word, "command"))
        return local_name(read[-1])

    def _argument(self, step: str, value: Any, read: list[str]) -> Any:
        """Returns an argument of a function with the paths of its files in the directory of the step. Adds the files to `read`."""
        if isinstance(value, (os.PathLike, WorkflowStep)):
            read.append(self._input(step, value, "arguments"))
            return Path(local_name(read[-1]))
        if type(value) in (list, tuple):
            return type(value)(self._argument(step, each, read) for each in value)
        if type(value) is dict:
            return {key: self._argument(step, each, read) for key, each in value.items()}
        return value

    def _add(
        self,
        name: str,
        stdin: Input | None,
        stdout: str | os.PathLike[str] | None,
        read: list[str],
        outputs: Sequence[str | os.PathLike[str]],
        options: StepOptions,
        function: Callable[..., Any] | None = None,
    ) -> tuple[WorkflowStep, dict[str, Any]]:
        """Adds a step whose name and inputs have been checked. Returns it with the rest of its table in the workflow file."""
        views = views_of(name, options)
        plain = [each for each in dict.fromkeys(read) if each not in views]
        table: dict[str, Any] = {"inputs": [*plain, *({"path": each, "view": True} for each in dict.fromkeys(views))]}
        read = [*read, *views]
        written = [checked_file(name, "outputs", each) for each in checked_list(name, "outputs", outputs)]
        table["outputs"] = list(written)
        if stdin is not None:
            table["stdin"] = self._input(name, stdin, "stdin")
            read = [*read, table["stdin"]]
        if stdout is not None:
            table["stdout"] = checked_file(name, "stdout", stdout)
            written += [table["stdout"]] if table["stdout"] not in written else []
        table["streams"] = self._streams(name, options, [*read, *written])
        self._check_files(name, list(dict.fromkeys(read)), written)
        table.update(options_of(name, options, self._steps))
        self._writers.update({self.directory / each: name for each in written})
        self._steps[name] = WorkflowStep(self, name, written, function)
        return self._steps[name], {key: value for key, value in table.items() if value not in ([], {}, None)}

    def _streams(self, step: str, options: StepOptions, files: list[str]) -> list[str]:
        streams = [self._input(step, each, "streams") for each in checked_list(step, "streams", options.get("streams") or ())]
        other = [each for each in streams if each not in files]
        if other:
            raise ValueError(f"the step {step!r}: streams has {other[0]!r}, which is none of its inputs and outputs")
        return streams

    def _check_files(self, step: str, read: list[str], written: list[str]) -> None:
        names: dict[str, str] = {}
        for given in [*read, *written]:
            other = names.setdefault(local_name(given), given)
            if other != given or (given in written and (given in read or written.count(given) > 1)):
                raise ValueError(f"the step {step!r} has two files with the name {local_name(given)!r}: {other} and {given}")
        for given in written:
            writer = self._writers.get(self.directory / given)
            if writer is not None:
                raise ValueError(f"the steps {writer!r} and {step!r} both write {given}")


class WorkflowRun:
    """A run of a workflow, made by `Workflow.start` or `Workflow.run`."""

    def __init__(self, workflow: Workflow, options: list[str], progress: bool | None, server: str | None) -> None:
        self._name, self._server = workflow.name, server
        #: The number of the job on a server; None on this machine, and before the run has ended.
        self.job: int | None = None
        self._failed: BaseException | None = None
        self._has_ended = False
        text = workflow.to_toml()
        # Relative paths start at the directory of the file.
        with tempfile.NamedTemporaryFile("w", dir=workflow.directory, prefix=".sailfish-", suffix=".toml", delete=False) as file:
            self._remove = weakref.finalize(self, _remove, file.name)
            file.write(text)
        self._program = _engine.Running(["workflow", "run", file.name, *options], display_of(progress))

    def done(self) -> bool:
        """Returns whether the run has ended."""
        return self._has_ended or self._program.has_ended()

    def wait(self) -> WorkflowRun:
        """Waits until the run has ended. Shows the standard output of steps without ``stdout``. Errors: the errors of `Workflow.run`."""
        if not self._has_ended:
            try:
                self._program.wait()
            except _engine.JobFailed as failed:
                self._failed = _engine.JobFailed(f"the workflow {self._name!r} failed: {failed}", failed.exit_code)
            except BaseException as error:
                self._failed = error
                self._end()
                self._cancel()
                raise
            self._end()
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self) -> None:
        """Stops the run and waits until its processes have ended; on a server, cancels its job. `wait` raises `JobFailed` afterwards,
        unless the run had succeeded. Error: `JobFailed` if the server cannot cancel the job."""
        if self.done():
            return
        self._program.stop()
        try:
            self.wait()
        except _engine.JobFailed as failed:
            self._cancel()
            if self._server is not None:
                self._failed = _engine.JobFailed(f"the workflow {self._name!r} failed: job {self.job} was cancelled", failed.exit_code)

    def _end(self) -> None:
        self._has_ended = True
        self._remove()
        printed = self._program.printed.decode(errors="replace")
        if self._server is not None:
            # The program prints the number of the job first.
            job, _, printed = printed.partition("\n")
            self.job = int(job) if job.isdigit() else None
        sys.stdout.write(printed)

    def _cancel(self) -> None:
        """Cancels the job of a program that was interrupted: on a server, the job goes on without the program."""
        if self._server is not None and self.job is not None:
            _engine.Running(["cancel", str(self.job), f"--server={self._server}"], None).wait()


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"the step of {function!r:.200} needs name=...: the function has no name of its own")
    return name


def _check_function(step: str, function: object) -> None:
    if not callable(function):
        raise TypeError(f"the step {step!r}: {function!r:.200} is no function")
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise TypeError(f"the step {step!r}: the function yields or is async: a step calls a plain function, which writes its outputs")


def _check_arguments(step: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some functions written in C have no signature.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(f"the step {step!r}: {error}: the function gets its arguments, and after them a path for each output") from None
