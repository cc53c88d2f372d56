"""spark_jobs.py JOB INPUT OUTPUT: runs a job by the RDDs of PySpark on two local cores. Writes `key TAB value` lines below OUTPUT.

The settings are Spark's defaults, except for two cores, the loopback interface, no web page, and an event log in OUTPUT.events with the
times of the stages. Run it with the interpreter of bench/peers/setup-spark.sh.
"""

from __future__ import annotations

import sys
from operator import add
from pathlib import Path
from typing import Any

import behavior_model
import click_attribution
import command
import log_count
import log_proc
import log_read
import mean_by_key
import nday_model
import segment_exploder
import word_count
from pyspark import SparkConf, SparkContext  # type: ignore[import-not-found,unused-ignore]


class Jobs:
    """The jobs, one method each. A method gets the directory of the inputs and returns an RDD of pairs."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def _lines(self, path: Path) -> Any:
        return self._spark.textFile(f"file://{path.absolute()}")

    def word_count(self, inputs: Path) -> Any:
        return self._lines(inputs).flatMap(word_count.words).map(word_count.one).reduceByKey(add)

    def mean_by_key(self, inputs: Path) -> Any:
        return self._lines(inputs).map(mean_by_key.measurement).groupByKey().mapValues(mean_by_key.mean)

    def mean_folded(self, inputs: Path) -> Any:
        values = self._lines(inputs).map(mean_by_key.measurement)
        return values.aggregateByKey((0, 0), mean_by_key.with_value, mean_by_key.added).mapValues(mean_by_key.divided)

    def log_count(self, inputs: Path) -> Any:
        return self._lines(inputs).map(log_count.request).reduceByKey(add)

    def log_proc(self, inputs: Path) -> Any:
        return self._lines(inputs).flatMap(log_proc.measurements).groupByKey().map(lambda group: log_proc.summary(*group))

    def log_read(self, inputs: Path) -> Any:
        return self._lines(inputs).map(log_read.read).groupByKey().map(lambda group: log_read.summary(*group))

    def nday_model(self, inputs: Path) -> Any:
        model = self._lines(inputs / "model").map(nday_model.by_user)
        day = self._lines(inputs / "day").map(nday_model.by_user)
        return model.fullOuterJoin(day).map(nday_model.updated).filter(nday_model.is_known)

    def behavior_model(self, inputs: Path) -> Any:
        views = self._lines(inputs / "views").flatMap(behavior_model.interests)
        searches = self._lines(inputs / "searches").flatMap(behavior_model.search_interests)
        clicks = self._lines(inputs / "clicks").flatMap(behavior_model.interests)
        return views.groupWith(searches, clicks).map(behavior_model.model)

    def click_attribution(self, inputs: Path) -> Any:
        impressions = self._lines(inputs / "impressions").filter(click_attribution.is_human).map(click_attribution.impression)
        clicks = self._lines(inputs / "clicks").map(click_attribution.click)
        return impressions.cogroup(clicks).flatMap(click_attribution.attributed).filter(click_attribution.is_attributed)

    def segment_exploder(self, inputs: Path) -> Any:
        impressions = self._lines(inputs / "impressions").flatMap(segment_exploder.places)
        targets = self._lines(inputs / "targets").map(segment_exploder.target)
        return impressions.cogroup(targets).flatMap(segment_exploder.reach).filter(segment_exploder.is_worth_telling)


def main(job: str, inputs: str, output: str) -> None:
    events = Path(f"{output}.events").absolute()
    events.mkdir()
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"}
    settings |= {"spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}
    spark = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName(job).setAll(list(settings.items())))
    spark.setLogLevel("WARN")
    pairs = getattr(Jobs(spark), job)(Path(inputs))
    pairs.map(command.line).saveAsTextFile(f"file://{Path(output).absolute()}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
