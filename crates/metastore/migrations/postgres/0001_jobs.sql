-- Jobs, what they consist of, and what happened to them. Times are nanoseconds since 1970. Tables and columns are those
-- of the SQLite store; booleans are 0 and 1 there and here.
-- Rows that change leave room on their page (fillfactor), so that a change needs no new index entry.

CREATE TABLE sequences (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
) WITH (fillfactor = 50);
INSERT INTO sequences (name, value) VALUES ('job', 0);

CREATE TABLE owners (
    uuid TEXT PRIMARY KEY,
    pid BIGINT NOT NULL,
    started_ns BIGINT NOT NULL,
    ended_ns BIGINT
);
-- The owner of the jobs of `sailfish server`: whichever process serves the store.
INSERT INTO owners (uuid, pid, started_ns) VALUES ('cluster', 0, 0);

-- state: running, committing, succeeded, failed, cancelled, interrupted.
-- cleaned_ns: when its directories were found gone; null means that they may exist.
-- user_name: who submitted it. priority: larger goes first.
-- reduce_again: the job whose kept I-files this one reads.
-- ifiles: kept, removing (set before the first file goes), removed; null where nothing was kept.
-- keep_until_ns: when kept files may go by themselves; null: never.
CREATE TABLE jobs (
    job BIGINT PRIMARY KEY,
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
) WITH (fillfactor = 45);
-- The jobs that still need something done: all a restart reads, however long the history is.
CREATE INDEX jobs_hot ON jobs (job) WHERE cleaned_ns IS NULL;
CREATE INDEX jobs_by_reduce_again ON jobs (reduce_again) WHERE reduce_again IS NOT NULL;

-- What a job was submitted as, and what it published: written once, and large.
CREATE TABLE specs (
    job BIGINT PRIMARY KEY,
    spec TEXT NOT NULL
);

CREATE TABLE reports (
    job BIGINT PRIMARY KEY,
    report TEXT NOT NULL
);

-- state: waiting, running, done.
CREATE TABLE stages (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    task_count BIGINT,
    expanded_ns BIGINT,
    ended_ns BIGINT,
    PRIMARY KEY (job, stage)
) WITH (fillfactor = 45);

-- state: waiting, done. Which of the waiting ones run stands in attempts. winner: the attempt that won.
CREATE TABLE tasks (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    state TEXT NOT NULL,
    winner BIGINT,
    payload TEXT NOT NULL,
    PRIMARY KEY (job, stage, task)
) WITH (fillfactor = 45);

-- state: running, succeeded, discarded, failed, cancelled, interrupted. failure: JSON of the failure.
CREATE TABLE attempts (
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
) WITH (fillfactor = 45);

-- A task on its own is its own pipeline.
CREATE VIEW pipelines AS
    SELECT job, stage, task, attempt, node, slot, assigned_ns AS started_ns, ended_ns FROM attempts;

-- Everything that happened, in order; only ever appended to.
CREATE TABLE events (
    event BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
    job BIGINT NOT NULL,
    name TEXT NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (job, name)
);

-- crc32c of the whole part file; name: final name within the output directory.
CREATE TABLE parts (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    name TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    records BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    PRIMARY KEY (job, name)
);
