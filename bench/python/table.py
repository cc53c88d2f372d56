"""The table of the Python benchmark: ratios of medians with their limits and aims, and the costs of each contender."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

import rows

#: (job, contender) -> (must, aim): the least ratio of the peer's time to ours, and the aim. A row without an entry is reported without a
#: verdict.
DEMANDS: dict[tuple[str, str], tuple[float, float]] = {
    **dict.fromkeys((("word_count", "spark"), ("mean_by_key", "spark")), (1.5, 3.0)),
    **dict.fromkeys((("word_count", "dask"), ("mean_by_key", "dask")), (2.0, 5.0)),
    **dict.fromkeys((("word_frequencies", "pool"), ("mean_by_key", "pool")), (0.8, 1.2)),
    **{(row.job, "spark"): (1.2, 2.0) for row in rows.ROWS if row.is_of_paper},
    **dict.fromkeys((("word_count", "hadoop"), ("log_count", "hadoop"), ("log_read", "hadoop")), (1.5, 3.0)),
}
#: The aim for the processor time, in percent above plain loops with the same functions.
SHARE_PERCENT_AIM = 25
#: The limit of the import time of the package, in milliseconds.
IMPORT_MS_MAX = 100

#: A line of the raw results.
Run = Mapping[str, str]


def show(text: str, value: str, unit: str = "", must: str = "", aim: str = "", verdict: str = "") -> str:
    return f"{text:<66} {value:>10} {unit:<7} {must:>8} {aim:>8}  {verdict}".rstrip()


def judged(text: str, ratio: float, demand: tuple[float, float] | None) -> str:
    if demand is None:
        return show(text, f"{ratio:.2f}", verdict="reported")
    must, aim = demand
    verdict = "MISSED" if ratio < must else "met, aim met" if ratio >= aim else "met"
    return show(text, f"{ratio:.2f}", "", f">= {must:g}", f">= {aim:g}", verdict)


def figures(runs: Mapping[tuple[str, str], list[Run]], reasons: Mapping[tuple[str, str], str]) -> Iterable[str]:
    yield show("figure", "value", "", "must", "aim")
    for row in rows.ROWS:
        for contender in row.contenders[1:]:
            text = f"{row.job}: {rows.NAMES[contender]} / ours"
            lacking = [each for each in ((row.job, contender), (row.job, "ours")) if each not in runs]
            if lacking:
                yield show(text, "-", verdict=reasons.get(lacking[0], f"not measured (--rows {row.job})"))
                continue
            theirs, ours = (median(float(run["wall_s"]) for run in runs[row.job, each]) for each in (contender, "ours"))
            yield judged(text, theirs / ours, DEMANDS.get((row.job, contender)))
    yield from shares(runs)
    imports = [float(run["wall_s"]) for run in runs.get((rows.IMPORT, "ours"), [])]
    verdict = "not measured" if not imports else "met" if median(imports) * 1000 <= IMPORT_MS_MAX else "MISSED"
    shown = f"{median(imports) * 1000:.0f}" if imports else "-"
    yield show("import sailfish, above bare Python", shown, "ms", f"<= {IMPORT_MS_MAX}", verdict=verdict)


def shares(runs: Mapping[tuple[str, str], list[Run]]) -> Iterable[str]:
    """Yields the overhead of the engine: our processor time above the time of plain loops over dictionaries with the same functions."""
    for row in rows.ROWS:
        if "pool" not in row.contenders or not all((row.job, each) in runs for each in ("ours", "pool")):
            continue
        ours, loops = (median(used_s(run) for run in runs[row.job, each]) for each in ("ours", "pool"))
        percent = 100 * (ours / loops - 1)
        verdict = "reported, aim met" if percent <= SHARE_PERCENT_AIM else "reported"
        yield show(f"{row.job}: processor time above {rows.NAMES['pool']}", f"{percent:.0f}", "%", "", f"<= {SHARE_PERCENT_AIM}", verdict)


def used_s(run: Run) -> float:
    """Returns the processor time of all processes of a run, in seconds."""
    return float(run["user_s"]) + float(run["sys_s"])


def spread(values: Iterable[str]) -> str:
    """Returns the median; `-` if no value is known."""
    known = [float(value) for value in values if value != "-"]
    return f"{median(known):.2f}" if known else "-"


def contenders(runs: Mapping[tuple[str, str], list[Run]]) -> Iterable[str]:
    titles = ("runs", "median s", "best s", "worst s", "map s", "reduce s", "user+sys s", "peak MiB", "commit")
    yield f"{'contender':<28}" + "".join(f"{title:>11}" for title in titles)
    for (job, contender), found in runs.items():
        if job == rows.IMPORT:
            continue
        walls = [float(run["wall_s"]) for run in found]
        used = median(map(used_s, found))
        peak = max((float(run["rss_mib"]) for run in found if run["rss_mib"] != "-"), default=0.0)
        times = [f"{median(walls):.2f}", f"{min(walls):.2f}", f"{max(walls):.2f}"]
        # The processor time of Spark is unknown: nobody waits for its Python workers, so they are not counted.
        shown_s = "-" if contender == "spark" else f"{used:.2f}"
        times += [spread(run[column] for run in found) for column in ("map_s", "reduce_s")]
        columns = (str(len(found)), *times, shown_s, f"{peak:.0f}", found[0]["commit"][:9])
        yield f"{job + '/' + contender:<28}" + "".join(f"{each:>11}" for each in columns)


def text(results: Iterable[Run], reasons: Mapping[tuple[str, str], str]) -> str:
    """Returns the table of the successful runs."""
    runs: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in results:
        runs[run["row"], run["contender"]].append(run)
    notes = (
        "Ratios are of medians of wall times; peak is of the summed resident sets of all processes. Equal outputs, compared after each run."
    )
    return "\n".join([*figures(runs, reasons), "", *contenders(runs), "", notes, ""])
