"""Each example against its model, and its inputs against what they promise."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import behavior_model
import click_attribution
import log_count
import log_proc
import log_read
import models
import nday_model
import near_duplicates
import pytest
import segment_exploder
import sessions

SIZE_BYTES = 200_000
MODULES = [
    log_count, log_proc, log_read, nday_model, behavior_model, click_attribution, segment_exploder, near_duplicates, sessions
]  # fmt: skip
#: Flow, module of the input, model.
FLOWS = [
    pytest.param(log_count.flow, log_count, models.log_count, id="log_count"),
    pytest.param(log_proc.flow, log_proc, models.log_proc, id="log_proc"),
    pytest.param(log_read.flow, log_read, models.log_read, id="log_read"),
    pytest.param(nday_model.flow, nday_model, models.n_day_model, id="nday_model"),
    pytest.param(behavior_model.flow, behavior_model, models.behavior, id="behavior_model"),
    pytest.param(click_attribution.flow, click_attribution, models.click_attribution, id="click_attribution"),
    pytest.param(segment_exploder.flow, segment_exploder, models.segment_exploder, id="segment_exploder"),
    pytest.param(near_duplicates.flow, near_duplicates, models.near_duplicate_removal, id="near_duplicates"),
    pytest.param(sessions.flow, sessions, models.sessions, id="sessions"),
    pytest.param(sessions.transitions, sessions, models.transitions, id="transitions"),
]


def texts(directory: Path) -> dict[str, bytes]:
    """Returns the contents of the files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("flow", "module", "model"), FLOWS)
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_flow_gives_what_the_model_gives(
    flow: Callable[[Path], Any], module: ModuleType, model: Callable[[Path], list[Any]], compress: bool, tmp_path: Path
) -> None:
    module.generate(tmp_path, SIZE_BYTES, 7, compress)
    expected = model(tmp_path)
    assert expected
    assert Counter(map(repr, flow(tmp_path).collect())) == Counter(map(repr, expected))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_input_follows_from_the_seed(module: ModuleType, tmp_path: Path) -> None:
    for name, seed, compress in (("one", 1, False), ("again", 1, False), ("other", 2, False), ("gzip", 1, True)):
        module.generate(tmp_path / name, SIZE_BYTES, seed, compress)
    one = texts(tmp_path / "one")
    assert one == texts(tmp_path / "again")
    assert one != texts(tmp_path / "other")
    packed = texts(tmp_path / "gzip")
    assert one == {name.removesuffix(".gz"): gzip.decompress(data) for name, data in packed.items()}
    assert all(data.endswith(b"\n") for data in one.values())
    assert 0.95 * SIZE_BYTES <= sum(map(len, one.values())) <= SIZE_BYTES


def map_output_bytes(path: Path, parse: Callable[[str], Iterable[tuple[Any, Any]]]) -> int:
    """Returns about how many bytes a map task puts out for a file: its pairs as text."""
    pairs = (pair for line in path.read_text().splitlines() for pair in parse(line))
    return sum(len(f"{key}\t{value}\n") for key, value in pairs)


def explosion(directory: Path, parses: Mapping[str, Callable[[str], Iterable[tuple[Any, Any]]]]) -> float:
    """Returns the bytes that maps put out for a byte of input."""
    files = [(path, parse) for kind, parse in parses.items() for path in (directory / kind).glob("*.txt")]
    return sum(map_output_bytes(path, parse) for path, parse in files) / sum(path.stat().st_size for path, _ in files)


def test_log_count_shrinks(tmp_path: Path) -> None:
    log_count.generate(tmp_path, 8_000_000, 1)
    folded = sum(len(f"{page}\t{count}\n") for page, count in models.log_count(tmp_path))
    # Here counts of all the input are folded; a map task of 32 MB folds nearly as much.
    assert folded < 0.1 * 8_000_000


def test_few_maps_of_log_proc_put_out_most(tmp_path: Path) -> None:
    log_proc.generate(tmp_path, 2_000_000, 1)
    sizes = sorted(map_output_bytes(path, log_proc.measurements) for path in tmp_path.glob("*.txt"))
    assert len(sizes) == 12
    assert sizes[-1] > 10 * sizes[-2]
    assert sizes[-1] > 0.6 * sum(sizes)
    assert sum(sizes) == pytest.approx(2_000_000, rel=0.2)


def test_two_data_sets_in_five_have_more_reads(tmp_path: Path) -> None:
    log_read.generate(tmp_path, 2_000_000, 1)
    counts = sorted(count for _, (count, _, _) in models.log_read(tmp_path))
    assert len(counts) == 40
    light, busy = counts[:24], counts[24:]
    assert min(busy) > 5 * max(light)
    assert sum(busy) / 16 == pytest.approx(9 * sum(light) / 24, rel=0.1)


def test_half_of_nday_model_files_are_larger(tmp_path: Path) -> None:
    nday_model.generate(tmp_path, 2_000_000, 1)
    model, day = ([path.stat().st_size for path in (tmp_path / kind).iterdir()] for kind in ("model", "day"))
    assert len(model) == len(day)
    assert sum(model) / sum(day) == pytest.approx(10 / 0.45, rel=0.05)
    users = [{columns[0] for columns in models.fields(tmp_path / kind)} for kind in ("model", "day")]
    assert users[0] & users[1] and users[1] - users[0]


def test_explosions(tmp_path: Path) -> None:
    for module in (behavior_model, click_attribution, segment_exploder):
        module.generate(tmp_path / module.__name__, 2_000_000, 1)
    behavior = {"views": behavior_model.interests, "searches": behavior_model.search_interests, "clicks": behavior_model.interests}
    assert explosion(tmp_path / "behavior_model", behavior) == pytest.approx(9.47 / 3.6, rel=0.1)

    def shown(line: str) -> Iterable[tuple[Any, Any]]:
        return [click_attribution.impression(line)] if click_attribution.is_human(line) else []

    clicks = {"impressions": shown, "clicks": lambda line: [click_attribution.click(line)]}
    assert explosion(tmp_path / "click_attribution", clicks) == pytest.approx(8.2 / 6.8, rel=0.1)
    segments = {"impressions": segment_exploder.places, "targets": lambda line: [segment_exploder.target(line)]}
    assert explosion(tmp_path / "segment_exploder", segments) == pytest.approx(25.2 / 14.1, rel=0.1)


def test_near_duplicates_of_a_chain_are_one_group() -> None:
    edges = [("e", "f"), ("b", "c"), ("c", "d"), ("d", "e"), ("x", "y"), ("a", "f")]
    assert dict(near_duplicates.duplicates(0, edges)) == {**dict.fromkeys("bcdef", "a"), "y": "x"}


def test_one_document_in_ten_goes(tmp_path: Path) -> None:
    near_duplicates.generate(tmp_path, SIZE_BYTES, 1)
    total, kept = sum(1 for _ in models.fields(tmp_path)), len(models.near_duplicate_removal(tmp_path))
    assert 0.85 * total < kept < 0.95 * total


def test_pause_of_half_an_hour_ends_a_session() -> None:
    views = [(0, "/a"), (1799, "/b"), (3599, "/c"), (3600, "/d")]
    assert list(sessions.sessions_of("u", views)) == [("u", (0, 1799, 2)), ("u", (3599, 1, 2))]
