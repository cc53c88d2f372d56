"""Tests of the storage, and of calls whose answers are lost."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from conftest import Site
from sailfish import files
from snakemake_executor_plugin_sailfish._cluster import CallFailed, Cluster, Needs, ServerAway
from snakemake_interface_storage_plugins.tests import TestStorageBase
from snakemake_storage_plugin_sailfish import StorageObject, StorageProvider, StorageProviderSettings


@pytest.fixture(autouse=True)
def server(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAILFISH_SERVER", site.url)


class TestFilesAndDirectories(TestStorageBase):
    """The tests of the interface."""

    __test__ = True
    files_only = False

    def get_storage_provider_cls(self) -> type[StorageProvider]:
        return StorageProvider

    def get_storage_provider_settings(self) -> StorageProviderSettings:
        return StorageProviderSettings(replicas=2)

    def get_query(self, tmp_path: Path) -> str:
        return "sailfish://interface/there"

    def get_query_not_existing(self, tmp_path: Path) -> str:
        return "sailfish://interface/not/there"


class TestTouch(TestFilesAndDirectories):
    files_only = True
    touch = True


def stored(tmp_path: Path, query: str) -> StorageObject:
    provider = StorageProvider(local_prefix=tmp_path / "local", logger=logging.getLogger(), settings=StorageProviderSettings())
    found: StorageObject = provider.object(query)
    found.local_path().parent.mkdir(parents=True, exist_ok=True)
    return found


def test_versions_and_times_are_those_of_files(tmp_path: Path) -> None:
    found = stored(tmp_path, "sailfish://times/a")
    for content in ("first", "second one"):
        found.local_path().write_text(content)
        found.store_object()
    entry = files.stat("times/a", server=os.environ["SAILFISH_SERVER"])
    assert found.size() == len("second one")
    assert found.mtime() == entry.created.timestamp()
    version = stored(tmp_path, f"sailfish://times/a@{entry.version}")
    version.retrieve_object()
    assert version.local_path().read_text() == "second one"
    found.touch()
    assert found.mtime() > entry.created.timestamp()
    found.remove()
    assert not found.exists()


def test_globs_list_all_candidates(tmp_path: Path) -> None:
    for name in ("globs/x/a.txt", "globs/y/b.txt"):
        found = stored(tmp_path, f"sailfish://{name}")
        found.local_path().write_text("")
        found.store_object()
    candidates = set(stored(tmp_path, "sailfish://globs/{group}/{sample}.txt").list_candidate_matches())
    assert candidates >= {"sailfish://globs/x/a.txt", "sailfish://globs/y/b.txt"}
    assert not list(stored(tmp_path, "sailfish://no/{sample}").list_candidate_matches())


@pytest.mark.parametrize("query", ["s3://a/b", "sailfish://", "sailfish://a//b", "sailfish://a/../b", "a"])
def test_other_names_are_refused(query: str) -> None:
    assert not StorageProvider.is_valid_query(query)


#: A program in place of `sailfish`: the answer to a first submission is lost.
LOSSY = """#!/bin/sh
echo "$@" >> {calls}
case $1 in
submit) [ -e {calls}.second ] && echo 7 && exit; touch {calls}.second; echo 'sailfish: connection lost' >&2; exit 1 ;;
jobs) echo '{jobs}' ;;
esac
"""
NEEDS = Needs(cores=2, memory_megabytes=30, time_minutes=4, has_network=True)


def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds: float = 60) -> Cluster:
    program = tmp_path / "program"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("SAILFISH_PROGRAM", str(program))
    return Cluster("http://server", seconds, lambda _: None)


@pytest.mark.parametrize(("listed", "job", "submissions"), [('[{"job": 5, "state": "running", "error": null}]', 5, 1), ("[]", 7, 2)])
def test_lost_answer_submits_no_second_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, job: int, submissions: int
) -> None:
    calls = tmp_path / "calls"
    asked = cluster(tmp_path, monkeypatch, LOSSY.format(calls=calls, jobs=listed))
    assert asked.submit("rule", "1-1", "true", NEEDS, [], None) == job
    said = calls.read_text()
    assert said.count("submit ") == submissions
    assert "--cores=2 --memory=30M --limit=time=4m --network -- sh -ec true" in said


def test_refused_and_absent_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "#!/bin/sh\n[ $1 = jobs ] && echo '[]' && exit; echo 'sailfish: too many cores' >&2; exit 2\n"
    with pytest.raises(CallFailed, match="too many cores"):
        cluster(tmp_path, monkeypatch, refused).submit("rule", "1-1", "true", NEEDS, [], None)
    absent = "#!/bin/sh\necho 'sailfish: cannot reach the server' >&2; exit 2\n"
    with pytest.raises(ServerAway, match="cannot reach the server"):
        cluster(tmp_path, monkeypatch, absent, seconds=0).submit("rule", "1-1", "true", NEEDS, [], None)
