#!/usr/bin/env python3
"""hyperqueue_jobs.py SERVER_DIR TASKS CPUS PROGRAM [ARG...]: one job of TASKS tasks that all run the program, on a HyperQueue server
and one worker of CPUS, both threads of this process (the Python package has no command hq).
Prints one line: JOB wall_s=... tasks=... rate=... Wall time is from submit until the server says that the job is over."""
import os, sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

POLL_S = 0.02


class Asked(Exception):
    """An exception that ends a wait after its first question: by itself the wait would ask once a second."""


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
    # A relative directory is found by the server and not by its worker.
    server_dir, tasks, cpus, program = os.path.abspath(argv[0]), int(argv[1]), int(argv[2]), argv[3:]
    with LocalCluster(server_dir) as cluster:
        cluster.start_worker(WorkerConfig(cores=cpus))
        client = cluster.client()
        run(client, 100, program)
        wall_s = run(client, tasks, program)
    print(f"JOB wall_s={wall_s:.3f} tasks={tasks} rate={tasks / wall_s:.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
