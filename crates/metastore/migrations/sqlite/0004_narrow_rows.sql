-- Small rows for what changes often, and one b-tree for each table with a composed key: a store that holds millions
-- of jobs that are over must write the next one as fast as the first.
-- Foreign keys stand where rows come by themselves; the rows of a job come from one server that knows them.

-- What a job was submitted as, and what it published: written once, and large.
CREATE TABLE specs (
    job INTEGER PRIMARY KEY,
    spec TEXT NOT NULL
);
INSERT INTO specs (job, spec) SELECT job, spec FROM jobs;

CREATE TABLE reports (
    job INTEGER PRIMARY KEY,
    report TEXT NOT NULL
);
INSERT INTO reports (job, report) SELECT job, report FROM jobs WHERE report IS NOT NULL;

-- The owner of the jobs of `sailfish server`: whichever process serves the store.
INSERT INTO owners (uuid, pid, started_ns) VALUES ('cluster', 0, 0);

-- owner: the process that schedules and cleans the job, or 'cluster'.
-- user_name: who submitted it; null: on one machine nobody asks.
-- priority: larger goes first.
CREATE TABLE jobs_narrow (
    job INTEGER PRIMARY KEY,
    owner TEXT NOT NULL REFERENCES owners (uuid),
    user_name TEXT,
    priority BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    output TEXT NOT NULL,
    staging TEXT NOT NULL,
    disk_dirs TEXT NOT NULL,
    exit_code BIGINT,
    error TEXT,
    created_ns BIGINT NOT NULL,
    started_ns BIGINT,
    ended_ns BIGINT,
    cleaned_ns BIGINT,
    reduce_again BIGINT,
    ifiles TEXT,
    keep_until_ns BIGINT
);
INSERT INTO jobs_narrow SELECT job, owner, NULL, 0, name, state, output, staging, disk_dirs, exit_code, error,
    created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_narrow RENAME TO jobs;
-- The jobs that still need something done: all a restart reads, however long the history is.
CREATE INDEX jobs_hot ON jobs (job) WHERE cleaned_ns IS NULL;
CREATE INDEX jobs_by_ifiles ON jobs (job) WHERE ifiles IN ('kept', 'removing');
CREATE INDEX jobs_by_reduce_again ON jobs (reduce_again) WHERE reduce_again IS NOT NULL;

CREATE TABLE stages_narrow (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    task_count BIGINT,
    expanded_ns BIGINT,
    ended_ns BIGINT,
    PRIMARY KEY (job, stage)
) WITHOUT ROWID;
INSERT INTO stages_narrow SELECT job, stage, name, state, task_count, expanded_ns, ended_ns FROM stages;

-- state: waiting, done. Which of the waiting ones run stands in attempts.
CREATE TABLE tasks_narrow (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    state TEXT NOT NULL,
    winner BIGINT,
    payload TEXT NOT NULL,
    PRIMARY KEY (job, stage, task)
) WITHOUT ROWID;
INSERT INTO tasks_narrow SELECT job, stage, task, CASE state WHEN 'done' THEN 'done' ELSE 'waiting' END, winner,
    payload FROM tasks;

CREATE TABLE attempts_narrow (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    node BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    state TEXT NOT NULL,
    assigned_ns BIGINT NOT NULL,
    started_ns BIGINT,
    opened_ns BIGINT,
    ended_ns BIGINT,
    failure TEXT,
    PRIMARY KEY (job, stage, task, attempt)
) WITHOUT ROWID;
INSERT INTO attempts_narrow SELECT job, stage, task, attempt, node, slot, state, assigned_ns, started_ns, opened_ns,
    ended_ns, failure FROM attempts;

DROP TABLE attempts;
DROP TABLE tasks;
DROP TABLE stages;
DROP TABLE pipelines;
ALTER TABLE stages_narrow RENAME TO stages;
ALTER TABLE tasks_narrow RENAME TO tasks;
ALTER TABLE attempts_narrow RENAME TO attempts;

-- A task on its own is its own pipeline.
CREATE VIEW pipelines AS
    SELECT job, stage, task, attempt, node, slot, assigned_ns AS started_ns, ended_ns FROM attempts;

-- What the winner of a task gave back, as JSON, where a restarted server could not tell it from other rows; gone
-- when the job is over.
CREATE TABLE results (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (job, stage, task)
) WITHOUT ROWID;
