-- Jobs, what they consist of, and what happened to them. Times are nanoseconds since 1970.
-- The types and clauses are those that PostgreSQL shares, wherever there is a choice.

CREATE TABLE sequences (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO sequences (name, value) VALUES ('job', 0);

CREATE TABLE owners (
    uuid TEXT PRIMARY KEY,
    pid BIGINT NOT NULL,
    started_ns BIGINT NOT NULL,
    ended_ns BIGINT
);

-- state: running, committing, succeeded, failed, cancelled, interrupted.
-- cleaned_ns: when its directories were found gone; null means that they may exist.
CREATE TABLE jobs (
    job BIGINT PRIMARY KEY,
    owner TEXT NOT NULL REFERENCES owners (uuid),
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    spec TEXT NOT NULL,
    output TEXT NOT NULL,
    staging TEXT NOT NULL,
    disk_dirs TEXT NOT NULL,
    exit_code BIGINT,
    error TEXT,
    report TEXT,
    created_ns BIGINT NOT NULL,
    started_ns BIGINT,
    ended_ns BIGINT,
    cleaned_ns BIGINT
);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_owner ON jobs (owner);

-- state: waiting, running, done.
CREATE TABLE stages (
    job BIGINT NOT NULL REFERENCES jobs (job),
    stage BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    task_count BIGINT,
    expanded_ns BIGINT,
    ended_ns BIGINT,
    PRIMARY KEY (job, stage)
);

-- state: waiting, running, done. winner: the number of the attempt that won.
CREATE TABLE tasks (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    state TEXT NOT NULL,
    payload TEXT NOT NULL,
    winner BIGINT,
    PRIMARY KEY (job, stage, task),
    FOREIGN KEY (job, stage) REFERENCES stages (job, stage)
);

-- A DAG of tasks that run together in one slot. So far always one task.
CREATE TABLE pipelines (
    pipeline INTEGER PRIMARY KEY AUTOINCREMENT,
    job BIGINT NOT NULL REFERENCES jobs (job),
    node BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    started_ns BIGINT NOT NULL,
    ended_ns BIGINT
);
CREATE INDEX pipelines_by_job ON pipelines (job);

-- state: running, succeeded, discarded, failed, cancelled, interrupted. failure: JSON of the failure.
CREATE TABLE attempts (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    pipeline BIGINT NOT NULL REFERENCES pipelines (pipeline),
    node BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    state TEXT NOT NULL,
    assigned_ns BIGINT NOT NULL,
    started_ns BIGINT,
    ended_ns BIGINT,
    failure TEXT,
    PRIMARY KEY (job, stage, task, attempt),
    FOREIGN KEY (job, stage, task) REFERENCES tasks (job, stage, task)
);
CREATE INDEX attempts_by_state ON attempts (job, state);

-- Everything that happened, in order; only ever appended to.
CREATE TABLE events (
    event INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ns BIGINT NOT NULL,
    job BIGINT,
    stage BIGINT,
    task BIGINT,
    attempt BIGINT,
    kind TEXT NOT NULL,
    detail TEXT
);
CREATE INDEX events_by_job ON events (job, event);

CREATE TABLE counters (
    job BIGINT NOT NULL REFERENCES jobs (job),
    name TEXT NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (job, name)
);

-- crc32c of the whole part file; name: final name within the output directory.
CREATE TABLE parts (
    job BIGINT NOT NULL REFERENCES jobs (job),
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    name TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    records BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    PRIMARY KEY (job, name)
);
