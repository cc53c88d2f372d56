"""Snakemake's jobs as jobs of one task of a Sailfish server, whose nodes share no file system.

    snakemake --executor sailfish --jobs 50 --sailfish-server URL \\
        --default-storage-provider sailfish --default-storage-prefix sailfish://runs/tutorial

A job gets the sources of the workflow as a shipped file, and runs Snakemake in a directory of its own on its node. Inputs and outputs go
through the storage. A job that is lost with its node is repeated by the server; Snakemake sees only jobs that ended.
"""

import os
import shlex
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from . import _sources
from ._cluster import CallFailed, Cluster, JobState, Needs, ServerAway

#: Directory of the outputs of failed jobs, below that of the workflow.
_LOGS = Path(".snakemake", "sailfish_logs")
#: Lines of the output of a failed job that the error shows.
_LINES_MAX = 20
_ARCHIVE = "snakemake-sources.tar"


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options of the executor, `--sailfish-...`."""

    server: str | None = field(
        default=None,
        metadata={"help": "URL of the Sailfish server, as in http://127.0.0.1:7070. Default: SAILFISH_SERVER.", "type": str},
    )
    python: str = field(
        default=sys.executable,
        metadata={
            "help": "Python with Snakemake and these plugins on the nodes: a path, or a name on their PATH. Default: the path of this one."
        },
    )
    network: bool = field(
        default=False,
        metadata={"help": "In a sandbox: let jobs reach the network, on nodes that allow it."},
    )
    outage_max: int = field(
        default=3600,
        metadata={"help": "Seconds for which a server that does not answer is asked again. Its jobs go on meanwhile.", "type": int},
    )

    def __post_init__(self) -> None:
        # The storage plugin has options of its own: without them it uses the same server.
        if self.server:
            os.environ["SAILFISH_SERVER"] = self.server


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=True,
    job_deploy_sources=True,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    # The values go in a file, which no list of jobs shows.
    pass_envvar_declarations_to_cmd=False,
    # The nodes have the plugins.
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
    # The sources are shipped with the jobs.
    can_transfer_local_files=True,
)


class Executor(RemoteExecutor):
    """Submits jobs to a server, and asks it for their ends."""

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        server = settings.server or os.environ.get("SAILFISH_SERVER")
        if not server:
            raise WorkflowError("no Sailfish server is named: give --sailfish-server URL, or set SAILFISH_SERVER")
        storage = self.workflow.storage_settings
        if not storage.default_storage_provider or storage.default_storage_prefix is None:
            raise WorkflowError(
                "the nodes share no files with this machine: give --default-storage-provider sailfish and "
                "--default-storage-prefix sailfish://NAME"
            )
        self._outage_max = settings.outage_max
        self._cluster = Cluster(server, settings.outage_max, self.logger.warning)
        self._away_since: float | None = None
        # The jobs that have not ended; the list of the base class is empty during a check.
        self._unfinished: dict[int, SubmittedJobInfo] = {}
        self._unfinished_lock = threading.Lock()
        self._archive: Path | None = None
        self._env_file: Path | None = None

    def get_python_executable(self) -> str:
        return shlex.quote(self.workflow.executor_settings.python)

    def run_job(self, job: JobExecutorInterface) -> None:
        try:
            # Snakemake repeats failed jobs under the same number.
            number = f"{job.jobid}-{job.attempt}"
            files = [self._packed_sources()]
            submitted = self._cluster.submit(job.name, number, self._script(job), self._needs(job), files, self._variables())
        except CallFailed as failed:
            self._report_error(SubmittedJobInfo(job), f"the server refuses the job: {failed}. ")
            return
        except ServerAway as away:
            raise WorkflowError(str(away)) from None
        info = SubmittedJobInfo(job, external_jobid=str(submitted))
        with self._unfinished_lock:
            self._unfinished[submitted] = info
        self.report_job_submission(info)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        if not active_jobs:
            return
        async with self.status_rate_limiter:
            states = self._states([int(info.external_jobid) for info in active_jobs])
        for info in active_jobs:
            if states is None:
                yield info
                continue
            state = states.get(int(info.external_jobid))
            if state is not None and not state.is_over:
                yield info
                continue
            with self._unfinished_lock:
                self._unfinished.pop(int(info.external_jobid), None)
            if state is not None and state.has_succeeded:
                self.report_job_success(info)
            else:
                self._report_failure(info, state)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        with self._unfinished_lock:
            unfinished = sorted(self._unfinished)
            self._unfinished.clear()
        for message in self._cluster.cancel(unfinished):
            self.logger.warning(f"A job was not cancelled: {message}")

    def _states(self, jobs: list[int]) -> dict[int, JobState] | None:
        """Returns the states of jobs; None while the server is away. Error: `WorkflowError` if it was away for too long."""
        try:
            states = self._cluster.states(jobs)
        except CallFailed as failed:
            now = time.monotonic()
            if self._away_since is None:
                self.logger.warning(f"The jobs go on, and their ends are not known: {failed}: trying again")
                self._away_since = now
            if now - self._away_since >= self._outage_max:
                raise WorkflowError(f"{failed}: the server was asked for {self._outage_max} s") from None
            return None
        self._away_since = None
        return states

    def _report_failure(self, info: SubmittedJobInfo, state: JobState | None) -> None:
        reason = "the server does not know it" if state is None else state.reason
        message = f"Sailfish's job {info.external_jobid}: {reason}. "
        logs: list[str] = []
        try:
            printed = self._cluster.logs(int(info.external_jobid))
        except CallFailed as failed:
            message += f"Its output is not known: {failed}. "
        else:
            path = _LOGS / f"{info.external_jobid}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(printed)
            logs.append(str(path))
            message += "Its last lines:\n" + "\n".join(printed.splitlines()[-_LINES_MAX:]) + "\n"
        self._report_error(info, message, aux_logs=logs)

    def _report_error(self, info: SubmittedJobInfo, message: str, **more: Any) -> None:
        if info.job.is_group():
            # Snakemake prints no message about a group.
            self.logger.error(f"Group {info.job.name}: {message}")
        self.report_job_error(info, msg=message, **more)

    def _needs(self, job: JobExecutorInterface) -> Needs:
        return Needs(
            cores=max(1, int(job.threads)),
            memory_megabytes=_number(job.resources, "mem_mb"),
            time_minutes=_number(job.resources, "runtime"),
            has_network=self.workflow.executor_settings.network,
        )

    def _script(self, job: JobExecutorInterface) -> str:
        lines = [f"tar -xf {_ARCHIVE}"]
        # A home directory need not be writable in a sandbox.
        lines.append('export XDG_CACHE_HOME="$PWD/.cache"')
        directory = os.path.dirname(self.workflow.executor_settings.python)
        if directory:
            # Programs of the same environment, as after its activation.
            lines.append(f'export PATH={shlex.quote(directory)}:"$PATH"')
        lines.append(self.format_job_exec(job))
        return "\n".join(lines)

    def _packed_sources(self) -> Path:
        if self._archive is None:
            sources = list(self.workflow.dag.get_sources())
            for path in _sources.outside(sources):
                self.logger.warning(f"{path} lies outside of the directory of the workflow, and the jobs do not get it: move it below")
            archive = Path(self.tmpdir, _ARCHIVE)
            _sources.pack(sources, archive)
            self._archive = archive
        return self._archive

    def _variables(self) -> Path | None:
        """Returns a file with the variables that the workflow declares; None if there are none."""
        variables = self.envvars()
        for name, value in variables.items():
            if "\n" in value:
                raise WorkflowError(f"the variable {name} has several lines: jobs of Sailfish get variables of one line")
        if self._env_file is None and variables:
            path = Path(self.tmpdir, "variables")
            path.touch(mode=0o600)
            path.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
            self._env_file = path
        return self._env_file


def _number(resources: Any, name: str) -> int:
    """Returns a resource of a job as a number; 0 if it is not set, or to be determined by a job that has not run."""
    value = resources.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


__all__: Sequence[str] = ["Executor", "ExecutorSettings", "common_settings"]
