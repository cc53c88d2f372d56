"""Planning: turns a dataflow into stages of map and reduce.

A stage reads files or the items of other stages, and ends at a shuffle or at the output. Steps on single items between two shuffles run in
the reduce tasks of the first stage. If several stages read the first stage, each of them runs its steps in its own map tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ._readers import packed
from ._run import Stage
from ._shuffles import Shuffle
from ._sizes import Batches
from ._spec import Format, Source, Spec
from ._steps import Step


@dataclass(eq=False)
class Read:
    """Items from files."""

    paths: tuple[str, ...]
    format: Format

    def __str__(self) -> str:
        shown = ", ".join(_place(path) for path in self.paths[:3])
        more = f" and {len(self.paths) - 3} more" if len(self.paths) > 3 else ""
        return f"read_{self.format.name}({shown}{more})"


def _place(path: str) -> str:
    """Returns a path below the working directory as a relative one, any other path as it is."""
    relative = path if path.startswith(("s3://", "files:")) else os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


@dataclass(eq=False)
class Made:
    """Items of this program."""

    items: list[Any]

    def __str__(self) -> str:
        return f"from_iterable({len(self.items)} items)"


@dataclass(eq=False)
class Stepped:
    """Items after a step."""

    parent: Node
    step: Step


@dataclass(eq=False)
class Joined:
    """The items of several nodes together."""

    parents: tuple[Node, ...]


@dataclass(eq=False)
class Shuffled:
    """Items after a shuffle: its sides, and its name in messages."""

    sides: tuple[Node, ...]
    shuffle: Shuffle
    name: str


Node = Read | Made | Stepped | Joined | Shuffled


@dataclass(eq=False)
class Branch:
    """One input of a stage: the origin of the items, and the steps before the shuffle."""

    origin: Read | Made | Planned
    steps: list[Step]
    side: int = 0


@dataclass(eq=False)
class Planned:
    """A stage of the plan, before it is written for the engine."""

    name: str
    branches: list[Branch]
    shuffle: Shuffle | None
    #: The steps after the shuffle.
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return f"stage {self.name}"


class Plan:
    """The stages of a dataflow, in an order in which each stage follows the stages that it reads."""

    def __init__(self, node: Node) -> None:
        self.stages: list[Planned] = []
        self._by_node: dict[int, Planned] = {}
        last = self._branches(node)
        only = last[0]
        if len(last) == 1 and isinstance(only.origin, Planned):
            self.last = only.origin
            self.last.steps += only.steps
        else:
            self.last = self._add("output", last, None)
        self._move_steps()

    def _branches(self, node: Node) -> list[Branch]:
        # A loop instead of recursion, because a chain of steps may exceed the recursion limit.
        steps: list[Step] = []
        while isinstance(node, Stepped):
            steps.append(node.step)
            node = node.parent
        steps.reverse()
        if isinstance(node, Joined):
            parents = [branch for parent in node.parents for branch in self._branches(parent)]
            return [Branch(branch.origin, [*branch.steps, *steps]) for branch in parents]
        return [Branch(self._stage_of(node) if isinstance(node, Shuffled) else node, steps)]

    def _stage_of(self, node: Shuffled) -> Planned:
        if id(node) not in self._by_node:
            branches = []
            for side, parent in enumerate(node.sides):
                branches += [Branch(branch.origin, branch.steps, side) for branch in self._branches(parent)]
            self._by_node[id(node)] = self._add(node.name, branches, node.shuffle)
        return self._by_node[id(node)]

    def _add(self, name: str, branches: list[Branch], shuffle: Shuffle | None) -> Planned:
        branches = self._apart(branches)
        stage = Planned(f"{len(self.stages) + 1}-{name}", branches, shuffle)
        self.stages.append(stage)
        return stage

    def _apart(self, branches: list[Branch]) -> list[Branch]:
        """Moves Parquet files into a stage of their own if the stage also has other inputs, because the engine splits Parquet files and
        lines in different ways."""
        are_parquet = [isinstance(branch.origin, Read) and branch.origin.format.name == "parquet" for branch in branches]
        if all(are_parquet) or not any(are_parquet):
            return branches
        apart = []
        for branch, is_parquet in zip(branches, are_parquet):
            if is_parquet:
                read = Planned(f"{len(self.stages) + 1}-read", [Branch(branch.origin, branch.steps)], None)
                self.stages.append(read)
                branch = Branch(read, [], branch.side)
            apart.append(branch)
        return apart

    def _move_steps(self) -> None:
        """Moves the steps of the only reader of a stage into the reduce tasks of that stage, so that less data lies between the two."""
        readers: dict[int, list[Branch]] = {}
        for stage in self.stages:
            for branch in stage.branches:
                readers.setdefault(id(branch.origin), []).append(branch)
        for stage in self.stages:
            branches = readers.get(id(stage), [])
            if len(branches) == 1 and stage.shuffle is not None and stage is not self.last:
                stage.steps += branches[0].steps
                branches[0].steps = []

    @property
    def has_made(self) -> bool:
        """Whether the dataflow has items of this program."""
        return any(isinstance(branch.origin, Made) for stage in self.stages for branch in stage.branches)

    def written(self, directory: Path, output_format: str, **of_output: Any) -> list[Stage]:
        """Returns the stages for the engine. Writes the items of this program into files in `directory`."""
        files: dict[int, Read] = {}
        for stage in self.stages:
            for branch in stage.branches:
                if isinstance(branch.origin, Made):
                    made = branch.origin
                    if id(made) not in files:
                        files[id(made)] = _stored(made.items, directory / f"items-{len(files)}")
                    branch.origin = files[id(made)]
        return [self._written(stage, output_format, of_output) for stage in self.stages]

    def _written(self, stage: Planned, output_format: str, of_output: dict[str, Any]) -> Stage:
        inputs: list[str] = []
        reads: list[str] = []
        of_files: dict[tuple[str, ...], range] = {}
        for branch in stage.branches:
            if isinstance(branch.origin, Read) and branch.origin.paths not in of_files:
                paths = branch.origin.paths
                of_files[paths] = range(len(inputs), len(inputs) + len(paths))
                inputs += paths
            if isinstance(branch.origin, Planned) and branch.origin.name not in reads:
                reads.append(branch.origin.name)
        sources = []
        for branch in stage.branches:
            if isinstance(branch.origin, Planned):
                numbers, format = frozenset((len(inputs) + reads.index(branch.origin.name),)), Format("items")
            else:
                assert isinstance(branch.origin, Read)
                numbers, format = frozenset(of_files[branch.origin.paths]), branch.origin.format
            sources.append(Source(numbers, format, branch.steps, branch.side))
        is_last = stage is self.last
        spec = Spec(sources, stage.shuffle, output_format if is_last else "items", stage.steps, **(of_output if is_last else {}))
        is_parquet = any(source.format.name == "parquet" for source in sources)
        return Stage(stage.name, spec, inputs, reads, "stretches" if is_parquet else None)

    def __str__(self) -> str:
        return "\n".join(line for stage in self.stages for line in self._lines(stage))

    def _lines(self, stage: Planned) -> Iterable[str]:
        yield f"stage {stage.name}"
        sides = len({branch.side for branch in stage.branches}) > 1
        for branch in stage.branches:
            side = f" (side {branch.side + 1})" if sides else ""
            yield f"  map{side}: " + _arrows([str(branch.origin), *map(_shown, branch.steps)])
        if stage.shuffle is not None:
            yield "  shuffle: " + stage.shuffle.shown()
        if stage.steps:
            yield "  reduce: " + _arrows(map(_shown, stage.steps))
        readers = [other.name for other in self.stages if any(branch.origin is stage for branch in other.branches)]
        yield "  to: " + (", ".join(f"stage {name}" for name in readers) or "the output")


def _arrows(parts: Iterable[str]) -> str:
    return " -> ".join(parts)


def _shown(step: Step) -> str:
    return step.name or step.kind


def _stored(items: list[Any], path: Path) -> Read:
    batches, left = Batches(), iter(items)
    with path.open("wb") as file:
        while some := list(islice(left, batches.items)):
            file.write(packed(some))
            batches.saw(some)
    return Read((str(path),), Format("items"))
