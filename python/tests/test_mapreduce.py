"""Tests of `MapReduce`, compared with plain Python."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import zoneinfo
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import sailfish as sf

PACKAGE = str(Path(sf.__file__).parent.parent)


def model(records: Iterable[Any], map: Callable[[Any], Any], reduce: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    """Returns the expected result of a job."""
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for record in records:
        for key, value in map(record):
            groups[key].append(value)
    return {key: reduce(key, groups[key]) for key in groups}


def text_file(directory: Path, lines: Iterable[str]) -> Path:
    path = directory / "input.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = random.Random(7)
    vocabulary = [f"word{number}" for number in range(5000)] + ["naïve", "日本"]
    lines = (" ".join(chosen.choices(vocabulary, k=8)) for _ in range(20_000))
    return text_file(tmp_path_factory.mktemp("book"), lines)


@pytest.mark.parametrize("combine", [None, sum, lambda key, values: sum(values)])
@pytest.mark.parametrize("reduce", [sum, lambda key, values: sum(values)])
def test_words_are_counted(book: Path, reduce: Any, combine: Any) -> None:
    result = sf.MapReduce(book, words, reduce, combine=combine).run()
    expected = model(book.read_text().splitlines(), words, lambda _, values: sum(values))
    pairs = list(result)
    assert dict(pairs) == expected and len(pairs) == len(expected)


@pytest.mark.parametrize("fold", [sum, min, max, len, list, set, sorted, any, all])
def test_builtin_folds_reduce(tmp_path: Path, fold: Any) -> None:
    path = text_file(tmp_path, (str(number) for number in range(500)))

    def by_rest(line: str) -> Iterator[tuple[int, int]]:
        yield int(line) % 7, int(line)

    expected = model(path.read_text().split(), by_rest, lambda _, values: fold(values))
    assert dict(sf.MapReduce(path, by_rest, fold).run()) == expected


@pytest.mark.parametrize("fold", [sum, min, max, any, all])
def test_builtin_folds_combine(tmp_path: Path, fold: Any) -> None:
    path = text_file(tmp_path, (str(number) for number in range(500)))
    map: Callable[[str], Any] = lambda line: [(int(line) % 7, int(line))]
    expected = model(path.read_text().split(), map, lambda _, values: fold(values))
    assert dict(sf.MapReduce(path, map, fold, combine=fold).run()) == expected


@pytest.mark.parametrize("fold", [len, list, set, sorted])
def test_folds_that_cannot_combine_are_refused(fold: Any) -> None:
    with pytest.raises(ValueError, match=rf"combine={fold.__name__}: .*sum, min, max, any, all may combine"):
        sf.MapReduce("x", words, fold, combine=fold)


def test_groups_larger_than_a_frame_are_streamed(tmp_path: Path) -> None:
    path = text_file(tmp_path, (str(number) for number in range(300_000)))

    def one_of_two(line: str) -> Iterator[tuple[str, str]]:
        yield ("few" if int(line) % 1000 == 0 else "many"), line

    def count_and_first(key: str, values: Iterator[str]) -> tuple[str, int]:
        first = next(values)
        # Unread values must not become part of the next group.
        return (first, -1) if key == "few" else (first, 1 + sum(1 for _ in values))

    assert dict(sf.MapReduce(path, one_of_two, count_and_first).run(memory="64M")) == {
        "few": ("0", -1),
        "many": ("1", 299_700),
    }


def test_keys_are_sorted_and_unchanged(tmp_path: Path) -> None:
    keys: list[Any] = [3, 1.5, True, -(10**30), 2.0, -0.5, 10**30]
    path = text_file(tmp_path, (str(index) for index in range(len(keys))))
    result = list(sf.MapReduce(path, lambda line: [(keys[int(line)], line)], list).run(slots=1))
    assert repr([key for key, _ in result]) == repr(sorted(keys))


@pytest.mark.parametrize(
    "key", [None, "text", b"bytes", 1.5, date(2020, 2, 29), datetime(2020, 1, 1, tzinfo=timezone.utc), (1, ("a", None))]
)
def test_each_type_of_key(tmp_path: Path, key: Any) -> None:
    path = text_file(tmp_path, ["a", "b"])
    assert list(sf.MapReduce(path, lambda line: [(key, line)], list).run()) == [(key, ["a", "b"])]


def test_text_output_formats(tmp_path: Path) -> None:
    path = text_file(tmp_path, ['{"k": "ä", "v": [1, null]}', "", '{"k": "b", "v": 2}'])

    def job(output_format: str, name: str) -> sf.Result:
        map: Callable[[Any], Any] = lambda record: [(record["k"], record["v"])]
        output = tmp_path / name
        return sf.MapReduce(path, map, list, output=output, input_format="jsonl", output_format=output_format).run(slots=1)

    tsv = job("tsv", "tsv")
    assert (tsv.output / "_SUCCESS").exists()
    assert [part.read_text() for part in tsv.parts] == ["b\t[2]\nä\t[[1, None]]\n"]
    assert list(job("jsonl", "jsonl")) == [("b", [2]), ("ä", [[1, None]])]
    assert list(job("pickle", "pickle")) == [("b", [2]), ("ä", [[1, None]])]


def test_parquet_output(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = text_file(tmp_path, (str(number) for number in range(100_000)))
    result = sf.MapReduce(path, lambda line: [(int(line), line)], max, output=tmp_path / "out", output_format="parquet").run()
    assert dict(result) == {number: str(number) for number in range(100_000)}
    assert sum(part["records"] for part in result.report["parts"]) == 100_000


def test_map_only_job_writes_map_output(tmp_path: Path) -> None:
    path = text_file(tmp_path, ["b a", "a"])
    assert list(sf.MapReduce(path, words, output=tmp_path / "out").run(slots=1)) == [("b", "1"), ("a", "1"), ("a", "1")]


def test_fixed_records_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"aaxbbxaay")
    assert dict(sf.MapReduce(path, lambda row: [(row[:2], row[2:])], list, input_format="fixed:3").run()) == {
        b"aa": [b"x", b"y"],
        b"bb": [b"x"],
    }
    lines = tmp_path / "lines"
    lines.write_bytes(b"\xff\n\xfe\n\xff\n")
    assert dict(sf.MapReduce(lines, lambda line: [(line, 1)], sum, input_format="bytes").run()) == {b"\xff": 2, b"\xfe": 1}


def test_empty_input_gives_empty_output(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert list(sf.MapReduce(path, words, sum).run()) == []


def test_setup_teardown_counters_and_prints(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = text_file(tmp_path, ["a", "b", "a"])
    state: dict[str, int] = {}

    def setup() -> None:
        state["ready"] = 5

    def map(line: str) -> Iterator[tuple[str, int]]:
        print("seen", line)
        sf.counter("lines")
        sf.counter("letters", len(line), group="text")
        sf.status("working")
        yield line, state["ready"]

    def teardown() -> None:
        sf.counter("teardowns")

    result = sf.MapReduce(path, map, sum, setup=setup, teardown=teardown).run()
    assert dict(result) == {"a": 10, "b": 5}
    counted = [result.counter("lines"), result.counter("letters", group="text"), result.counter("nothing")]
    assert counted == [3, 3, 0]
    # One map task and one reduce task.
    assert result.counter("teardowns") == 2
    assert capfd.readouterr().out == ""


@pytest.fixture(scope="module")
def many_splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file of more than ten splits."""
    return text_file(tmp_path_factory.mktemp("splits"), (f"{number:07} {'x' * 1000}" for number in range(12_000)))


def test_processes_serve_many_tasks(many_splits: Path, tmp_path: Path) -> None:
    state: list[int] = []
    begun: list[str] = []
    given = tmp_path / "given.txt"
    given.write_text("found")

    def setup() -> None:
        sf.counter("setups")
        assert "LEFT_BEHIND" not in os.environ
        os.environ["LEFT_BEHIND"] = "by a task before"
        begun.append(os.environ["SAILFISH_TASK"])
        # Files left by a task are gone for the next task.
        assert os.listdir() and not os.path.exists("scratch")
        Path("scratch").write_text("of this task")

    def map(line: str) -> Iterator[tuple[str, tuple[int, str, int]]]:
        sf.counter("lines")
        state.append(1)
        assert begun == [os.environ["SAILFISH_TASK"]]
        assert Path("given.txt").read_text() == "found"
        yield "map", (os.getpid(), os.environ["SAILFISH_TASK"], len(state))

    def reduce(key: str, values: Iterable[tuple[int, str, int]]) -> tuple[set[int], dict[str, int]]:
        processes: set[int] = set()
        tasks: dict[str, int] = {}
        for process, task, count in values:
            processes.add(process)
            tasks[task] = max(count, tasks.get(task, 0))
        return processes | {os.getpid()}, tasks

    result = sf.MapReduce(many_splits, map, reduce, setup=setup, files=[given], env={"LEVEL": "5"}).run(slots=2)
    processes, tasks = dict(result)["map"]
    assert len(tasks) > 10
    assert len(processes) <= 2
    # The functions have no state of other tasks.
    assert sum(tasks.values()) == result.counter("lines") == 12_000
    assert result.counter("setups") == len(tasks) + 1


def test_killed_worker_does_not_affect_other_tasks(many_splits: Path, tmp_path: Path) -> None:
    def map(line: str) -> Iterator[tuple[int, int]]:
        if line.startswith("0000000"):
            print("in the middle", file=sys.stderr)
            try:
                (tmp_path / "tried").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        sf.counter("lines")
        yield 0, 1

    result = sf.MapReduce(many_splits, map, sum).run(slots=2)
    assert dict(result) == {0: 12_000}
    assert result.counter("lines") == 12_000


def test_process_with_a_thread_runs_one_task(many_splits: Path) -> None:
    def setup() -> None:
        threading.Thread(target=time.sleep, args=(0.1,)).start()

    def map(line: str) -> Iterator[tuple[str, int]]:
        yield os.environ["SAILFISH_TASK"], os.getpid()

    def reduce(key: str, values: Iterable[int]) -> int:
        (process,) = set(values)
        return process

    found = dict(sf.MapReduce(many_splits, map, reduce, setup=setup).run(slots=2))
    assert len(found) > 10


def failing(tmp_path: Path, lines: Iterable[str], map: Any, reduce: Any, combine: Any = None, **kwargs: Any) -> str:
    job = sf.MapReduce(text_file(tmp_path, lines), map, reduce, combine, tmp_path / "out", **kwargs)
    with pytest.raises(sf.JobFailed) as failed:
        job.run(slots=1)
    assert not (tmp_path / "out").exists()
    return str(failed.value)


def test_map_exception_names_the_record(tmp_path: Path) -> None:
    def helper(line: str) -> float:
        return 1 / int(line)

    def map(line: str) -> Iterator[tuple[str, float]]:
        yield line, helper(line)

    said = failing(tmp_path, ["1", "2", "0", "3", "0"], map, sum)
    assert f"the map function failed, {tmp_path}/input.txt at byte 4: ZeroDivisionError: division by zero" in said
    assert "1 of the 2 records after it fail as well" in said
    assert "in helper" in said and "return 1 / int(line)" in said
    assert "_worker.py" not in said


def test_exceptions_of_other_functions_are_reported(tmp_path: Path) -> None:
    def wrong(*_: Any) -> Any:
        raise LookupError("no such thing")

    assert "the reduce function failed with the key 'a': LookupError: no such thing" in failing(tmp_path, ["a"], words, wrong)
    assert "the combine function failed with the key 'a': LookupError" in failing(tmp_path, ["a"], words, sum, wrong)
    assert "setup failed: LookupError: no such thing" in failing(tmp_path, ["a"], words, sum, setup=wrong)
    assert "teardown failed: LookupError" in failing(tmp_path, ["a"], words, sum, teardown=wrong)
    assert "the map function called sys.exit" in failing(tmp_path, ["a"], lambda line: sys.exit(3), sum)
    assert "missing 1 required positional argument" in failing(tmp_path, ["a"], lambda line, more: [], sum)
    # Exit code 130 looks like Ctrl-C, but it is an ordinary failure.
    assert "ended with exit code 130" in failing(tmp_path, ["a"], lambda line: os._exit(130), sum)

    def interrupts(line: str) -> Any:
        raise KeyboardInterrupt

    assert "KeyboardInterrupt" in failing(tmp_path, ["a"], interrupts, sum)


def test_odd_exception_texts_are_reported(tmp_path: Path) -> None:
    def odd(line: str) -> Any:
        raise ValueError("\udc80" + "z" * 30_000_000)

    said = failing(tmp_path, ["a"], odd, sum)
    assert "ValueError: \\udc80zzz" in said
    assert len(said) < 20_000


@pytest.mark.parametrize(
    ("map", "expected"),
    [
        (lambda line: None, "returned None: it must yield (key, value) pairs"),
        (lambda line: 5, "returned 5: it must yield (key, value) pairs"),
        (lambda line: [line], "yielded 'aaa', which is not a (key, value) pair"),
        (lambda line: ["ab"], "yielded 'ab', which is not a (key, value) pair"),
        (lambda line: [(line, 1, 2)], "yielded ('aaa', 1, 2), which is not a (key, value) pair"),
        (lambda line: [([line], 1)], "is a builtins.list, which cannot be a key"),
        (lambda line: [(1, 1), ("a", 1)], "the keys 1 (int) and 'a' (str) cannot be compared"),
        (lambda line: [(("a", 1), 1), (("a", "b"), 1)], "the keys ('a', 1) (tuple) and ('a', 'b') (tuple) cannot be compared"),
    ],
)
@pytest.mark.parametrize("combine", [None, sum])
def test_wrong_map_results_are_refused(tmp_path: Path, map: Any, expected: str, combine: Any) -> None:
    said = failing(tmp_path, ["aaa"], map, sum, combine)
    assert expected in said
    assert "cannot" in said or "at byte 0" in said


def test_reduce_yields_pairs(tmp_path: Path) -> None:
    path = text_file(tmp_path, ["a a b"])

    def reduce(key: str, values: Iterator[int]) -> Iterator[tuple[str, int]]:
        for number, value in enumerate(values):
            yield f"{key}{number}", value

    assert dict(sf.MapReduce(path, words, reduce).run()) == {"a0": 1, "a1": 1, "b0": 1}

    def wrong(key: str, values: Iterator[int]) -> Iterator[Any]:
        yield key

    assert "the reduce function yielded 'a', which is not a (key, value) pair" in failing(tmp_path, ["a"], words, wrong)


@pytest.mark.parametrize("reduce", [lambda key, values: values, lambda key, values: zip(values)])
def test_iterator_as_result_is_refused(tmp_path: Path, reduce: Any) -> None:
    assert "which can be read only once" in failing(tmp_path, ["a"], words, reduce)


def test_map_only_job_must_yield_pairs(tmp_path: Path) -> None:
    assert "yielded 'ab', which is not a (key, value) pair" in failing(tmp_path, ["ab"], lambda line: [line], None)


def test_combine_does_not_change_key_equality(tmp_path: Path) -> None:
    path = text_file(tmp_path, ["a"])
    new_york = zoneinfo.ZoneInfo("America/New_York")
    # Two instants of the repeated hour: equal in Python, because the time zone is the same, but an hour apart.
    twice = [datetime(2024, 11, 3, 1, tzinfo=new_york, fold=fold) for fold in (0, 1)]
    rows: list[list[Any]] = [twice, [(key, 1) for key in twice], [math.nan, math.nan], [1, True, 1.0]]
    for keys in rows:
        map: Callable[..., Any] = lambda line, keys=keys: [(key, 1) for key in keys]
        results = [
            [count for _, count in sf.MapReduce(path, map, sum, combine=combine).run()]
            for combine in (None, sum, lambda key, values: sum(values))
        ]
        assert results[0] == results[1] == results[2]


@dataclass(frozen=True)
class Point:
    x: int
    y: int


MAIN = """
import sys
from collections import namedtuple
from dataclasses import dataclass
import sailfish as sf

Key = namedtuple("Key", "letter")

@dataclass
class Window:
    total: int

def map(line):
    yield Key(line), Window(1)

def add(key, values):
    return Window(sum(value.total for value in values))

print(sorted(sf.MapReduce(sys.argv[1], map, add, combine=add).run()))
"""


def test_classes_of_the_script_are_keys_and_values(tmp_path: Path) -> None:
    path, script = text_file(tmp_path, ["b", "a", "b"]), tmp_path / "script.py"
    script.write_text(MAIN)
    environment = {**os.environ, "PYTHONPATH": PACKAGE}
    ran = subprocess.run([sys.executable, script, path], capture_output=True, text=True, env=environment)
    assert ran.stdout == "[(Key(letter='a'), Window(total=1)), (Key(letter='b'), Window(total=2))]\n", ran.stderr
    result = sf.MapReduce(path, lambda line: [(line, Point(1, 2))], list).run()
    assert dict(result) == {"a": [Point(1, 2)], "b": [Point(1, 2), Point(1, 2)]}


def test_parquet_refuses_lossy_types(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    def late(key: str, values: Iterator[int]) -> float:
        return 1.5 if int(key) > 95_000 else 1

    lines = [f"{number:05}" for number in range(100_000)]
    said = failing(tmp_path, lines, words, late, output_format="parquet")
    assert "the output of the reduce function cannot be written" in said
    said = failing(tmp_path, ["a", "b"], words, lambda key, values: key if key == "a" else b"b", output_format="parquet")
    assert "values of several types (bytes, str)" in said


def test_large_pairs_do_not_fill_memory(tmp_path: Path) -> None:
    path = text_file(tmp_path, ["a"])

    def map(line: str) -> Iterator[tuple[int, bytes]]:
        for number in range(150):
            yield number, b"x" * 2_000_000

    def size(key: int, values: Iterator[bytes]) -> bytes:
        if key == 149:
            peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            sf.counter("peak_kib", int(peak[1]) if peak else 0)
        return next(values)

    result = sf.MapReduce(path, map, size, combine=max).run(slots=1)
    assert [len(value) for _, value in result] == [2_000_000] * 150
    assert 0 < result.counter("peak_kib") < 200_000


def test_counters_follow_unfinished_lines(tmp_path: Path) -> None:
    def map(line: str) -> list[tuple[str, int]]:
        print(".", end="")
        sys.stderr.write("x")
        sf.counter("lines")
        return [(line, 1)]

    assert sf.MapReduce(text_file(tmp_path, ["a", "b"]), map, sum).run().counter("lines") == 2
    said = failing(tmp_path, ["a"], lambda line: sf.counter("half", 0.5), sum)  # type: ignore[arg-type]
    assert "TypeError: 'float' object cannot be interpreted as an integer" in said


def test_many_inputs_and_odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"-{number:04}-{'x' * 100}" for number in range(1500)]
    for path in paths:
        path.write_text("a\n")
    assert dict(sf.MapReduce(paths, words, sum).run()) == {"a": 1500}
    monkeypatch.chdir(tmp_path)
    assert dict(sf.MapReduce(paths[0].name, words, sum, env={"LEVEL": "5"}, setup=lambda: os.environ["LEVEL"]).run()) == {"a": 1}


def test_combine_must_keep_its_key(tmp_path: Path) -> None:
    def other(key: str, values: Iterator[int]) -> Iterator[tuple[str, int]]:
        yield key + "x", 1

    said = failing(tmp_path, ["a"], words, sum, other)
    assert "the combine function, given the key 'a', yielded the key 'ax'" in said


def test_invalid_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"plain\nna\xefve\n")
    with pytest.raises(sf.JobFailed, match=r"latin at byte 8: UnicodeDecodeError: 'utf-8' codec"):
        sf.MapReduce(path, words, sum).run()
    assert dict(sf.MapReduce(path, words, sum, encoding="latin-1").run()) == {"plain": 1, "naïve": 1}
    assert dict(sf.MapReduce(path, words, sum, errors="replace").run()) == {"plain": 1, "na\ufffdve": 1}
    with pytest.raises(sf.JobFailed, match=r"latin at byte 0: .*JSONDecodeError"):
        sf.MapReduce(path, words, sum, input_format="jsonl").run()
    path.write_bytes(b'{"a":\r1}\n' * 50 + b'["\xff"]\n')
    with pytest.raises(sf.JobFailed, match=r"latin at byte 452: UnicodeDecodeError"):
        sf.MapReduce(path, words, sum, input_format="jsonl").run()


def test_unpicklable_object_is_named() -> None:
    lock = threading.Lock()

    def map(line: str) -> Iterator[tuple[str, int]]:
        with lock:
            yield line, 1

    with pytest.raises(sf.CannotSend, match=r"the map function cannot be sent .* it uses 'lock', a _thread.lock"):
        sf.MapReduce(__file__, map, sum).run()


def test_killed_worker_is_reported(tmp_path: Path) -> None:
    def map(line: str) -> Iterator[tuple[str, int]]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield line, 1

    assert "was ended by signal 9, which sailfish did not send" in failing(tmp_path, ["a"], map, sum)


def test_existing_output_is_refused(tmp_path: Path) -> None:
    path = text_file(tmp_path, ["a"])
    (tmp_path / "out").mkdir()
    job = sf.MapReduce(path, words, sum, output=tmp_path / "out")
    with pytest.raises(sf.JobFailed, match=r"^output .*/out exists already: choose another or add overwrite=True$"):
        job.run()
    sf.MapReduce(path, words, sum, output=tmp_path / "out", overwrite=True).run()


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="input_format='words' is not known"):
        sf.MapReduce("x", words, input_format="words")
    with pytest.raises(ValueError, match="output_format='xml' is not known"):
        sf.MapReduce("x", words, output_format="xml")
    with pytest.raises(ValueError, match="encoding='utf-16'"):
        sf.MapReduce("x", words, encoding="utf-16")
    with pytest.raises(TypeError, match="map='words' is not callable"):
        sf.MapReduce("x", "words")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="input is empty"):
        sf.MapReduce([], words)
    with pytest.raises(ValueError, match="combine needs a reduce function"):
        sf.MapReduce("x", words, combine=sum)
    with pytest.raises(sf.JobFailed, match=r"^input /no --output does not exist$"):
        sf.MapReduce("/no --output", words, sum).run()
    with pytest.raises(sf.JobFailed, match=r"^memory of 1048576 bytes is below the minimum"):
        sf.MapReduce(__file__, words, sum).run(memory="1M")
    with pytest.raises(sf.JobFailed, match=r'^python: program "python9" not found .* with files$'):
        sf.MapReduce(__file__, words, sum).run(python="python9")
    with pytest.raises(sf.JobFailed, match=r'^the stage "1-count_by_value": memory of 1048576 bytes is below the minimum'):
        sf.read_text(__file__).count_by_value().count_by_value().collect(memory="1M")


ENDLESS = """
import sys
import sailfish as sf

def endless(line):
    with open(sys_argv[2], "w") as file:
        file.write("begun")
    while True:
        yield line, 1

sys_argv = sys.argv
sf.MapReduce(sys.argv[1], endless, sum, combine=sum, output=sys.argv[3]).run(progress=True)
"""


def processes_with(text: str) -> list[str]:
    """Returns the command lines of processes that contain a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [words] if text in words else []
    return found


@contextlib.contextmanager
def endless_job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yields a client with a running job that never ends."""
    path, script, begun = text_file(tmp_path, ["a"]), tmp_path / "endless.py", tmp_path / "begun"
    script.write_text(ENDLESS)
    # A separate state identifies this engine among others on the machine. A killed client leaves temporary files, so it has its own TMPDIR.
    places = {"XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    environment = {**os.environ, "PYTHONPATH": PACKAGE, **places}
    words = [sys.executable, str(script), str(path), str(begun), str(tmp_path / "out")]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True, env=environment) as child:
        while not begun.exists():
            assert child.poll() is None
            time.sleep(0.01)
        yield child


def test_ctrl_c_ends_an_endless_generator(tmp_path: Path) -> None:
    with endless_job(tmp_path) as child:
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    # One signal arrives, so the program cleans up.
    assert "stopping the job" in said
    assert "stopped at once" not in said
    assert processes_with(str(tmp_path)) == []
    assert not (tmp_path / "out").exists()


def test_a_job_ends_with_its_client(tmp_path: Path) -> None:
    with endless_job(tmp_path) as child:
        child.kill()
    until = time.monotonic() + 60
    while processes_with(str(tmp_path)):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not (tmp_path / "out").exists()


def test_import_does_not_load_cloudpickle() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", "import sys, sailfish; print(len(sys.modules), 'cloudpickle' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": PACKAGE},
    ).stdout
    assert listed.endswith("False\n")


def test_package_has_the_engine_version() -> None:
    manifest = Path(__file__).parents[2].joinpath("Cargo.toml").read_text()
    assert f'\nversion = "{sf.__version__}"\n' in manifest


def test_engine_of_another_version_is_refused() -> None:
    payload = b'{"version": 99, "role": "map"}'
    path = os.pathsep.join([PACKAGE, *sys.path])
    ran = subprocess.run(
        [sys.executable, "-m", "sailfish._worker"],
        input=len(payload).to_bytes(4, "little") + b"J\0\0\0" + payload,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 1
    assert b"the engine speaks version 99 of the frames, and this package 2: install the same version of both" in ran.stdout


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("pyarrow", "sf.MapReduce('x', map, output_format='parquet', output='y')"),
        ("pyarrow", "sf.read_parquet('x')"),
        ("pyarrow", "sf.from_iterable([1]).to_arrow()"),
        ("pandas", "sf.from_iterable([1]).to_pandas()"),
        ("polars", "sf.from_iterable([1]).to_polars()"),
    ],
)
def test_missing_library_is_named(library: str, call: str) -> None:
    script = f"import sys; sys.modules[{library!r}] = None; import sailfish as sf; {call}"
    path = os.pathsep.join([PACKAGE, *sys.path])
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 1
    assert f"needs {library}: pip install {library}" in ran.stderr.splitlines()[-1]
