#!/usr/bin/env python3
"""hyperqueue_jobs.py SERVER_DIR TASKS CPUS PROGRAM [ARG...]: runs a job of TASKS tasks, each of which runs the program, on a HyperQueue
server and one worker with CPUS cores. Both are threads of this process, because the Python package has no command hq.
Prints one line: JOB wall_s=... tasks=... rate=... The wall time is from submit until the server reports the end of the job."""
import os, sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

POLL_S = 0.02


class Asked(Exception):
    """Exception that ends a wait after its first poll, because the wait itself polls only once a second."""


def run(client, tasks, program):
    job = Job(default_workdir=os.getcwd())
    for _ in range(tasks):
        job.program(program, stdout=None, stderr=None)
    seen = {}

    def asked(states):
        seen.update(states)
        raise Asked

    began = time.monotonic()
    submitted = client.submit(job)
    while True:
        try:
            client.connection.wait_for_jobs([submitted.id], asked)
        except Asked:
            pass
        state = seen[submitted.id]
        if state["completed"]:
            break
        time.sleep(POLL_S)
    wall_s = time.monotonic() - began
    if state["finished"] != tasks:
        sys.exit(f"{state['finished']} of {tasks} tasks finished, {state['failed']} failed")
    return wall_s


def main(argv):
    # The worker does not find a relative directory, so the path is absolute.
    server_dir, tasks, cpus, program = os.path.abspath(argv[0]), int(argv[1]), int(argv[2]), argv[3:]
    with LocalCluster(server_dir) as cluster:
        cluster.start_worker(WorkerConfig(cores=cpus))
        client = cluster.client()
        run(client, 100, program)
        wall_s = run(client, tasks, program)
    print(f"JOB wall_s={wall_s:.3f} tasks={tasks} rate={tasks / wall_s:.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
