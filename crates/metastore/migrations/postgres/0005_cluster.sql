-- Who may do what, which machines there are, and what the server of many machines must know again after a restart.

CREATE TABLE roles (
    role TEXT PRIMARY KEY,
    may TEXT NOT NULL
);
INSERT INTO roles (role, may) VALUES
    ('admin', 'everything'),
    ('user', 'submit jobs, see all, stop and remove their own'),
    ('read-only', 'see all'),
    ('node', 'pull and run tasks, report what they did');

CREATE TABLE users (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL REFERENCES roles (role),
    created_ns BIGINT NOT NULL,
    disabled_ns BIGINT
);

-- hash: SHA-256 of the token, which itself is nowhere. token: its name, to revoke it by.
CREATE TABLE tokens (
    token TEXT PRIMARY KEY,
    user_name TEXT NOT NULL REFERENCES users (name),
    hash BYTEA NOT NULL UNIQUE,
    created_ns BIGINT NOT NULL,
    expires_ns BIGINT,
    revoked_ns BIGINT
);
CREATE INDEX tokens_by_user ON tokens (user_name);

CREATE TABLE racks (
    rack TEXT PRIMARY KEY,
    first_seen_ns BIGINT NOT NULL
);

-- state: up, draining, drained, dead, left.
-- generation: counts the registrations of the name. incarnation: the process behind the last one.
CREATE TABLE nodes (
    node BIGINT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    rack TEXT NOT NULL REFERENCES racks (rack),
    slots BIGINT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    cpu_count BIGINT NOT NULL,
    arch TEXT NOT NULL,
    version TEXT NOT NULL,
    state TEXT NOT NULL,
    generation BIGINT NOT NULL,
    incarnation TEXT NOT NULL,
    registered_ns BIGINT NOT NULL,
    last_seen_ns BIGINT NOT NULL
);
CREATE INDEX nodes_by_rack ON nodes (rack);

-- state: usable, full, read-only, failed.
CREATE TABLE disks (
    node BIGINT NOT NULL REFERENCES nodes (node),
    disk BIGINT NOT NULL,
    path TEXT NOT NULL,
    total_bytes BIGINT NOT NULL,
    free_bytes BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (node, disk)
);

-- How a machine was at a time. Bytes are counts within the second before; busy shares are in thousandths.
CREATE TABLE samples (
    node BIGINT NOT NULL,
    time_ns BIGINT NOT NULL,
    cpu_permille BIGINT NOT NULL,
    memory_used_bytes BIGINT NOT NULL,
    disk_busy_permille BIGINT NOT NULL,
    disk_read_bytes BIGINT NOT NULL,
    disk_written_bytes BIGINT NOT NULL,
    network_received_bytes BIGINT NOT NULL,
    network_sent_bytes BIGINT NOT NULL,
    appended_bytes BIGINT NOT NULL,
    PRIMARY KEY (node, time_ns)
);
CREATE INDEX samples_by_time ON samples (time_ns);

-- Who asked for what, and whether it was allowed. Only ever appended to.
CREATE TABLE audit (
    audit BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    time_ns BIGINT NOT NULL,
    user_name TEXT,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    allowed BIGINT NOT NULL,
    detail TEXT
);
CREATE INDEX audit_by_user ON audit (user_name, audit);

-- Copies of a run on other nodes than its first. state: copying, complete, lost.
CREATE TABLE replicas (
    job BIGINT NOT NULL,
    run BIGINT NOT NULL,
    node BIGINT NOT NULL,
    disk BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (job, run, node)
);

-- Why an attempt ran where it did, as JSON.
CREATE TABLE placements (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (job, stage, task, attempt)
);

-- Each time a server took the lead of the store. applied: number of its last transaction, so that one whose answer
-- was lost is neither repeated nor forgotten.
CREATE TABLE leads (
    lead BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner TEXT NOT NULL,
    started_ns BIGINT NOT NULL,
    applied BIGINT NOT NULL
) WITH (fillfactor = 10);

INSERT INTO sequences (name, value) VALUES ('node', 0);

-- What people may ask with SQL: views, without secrets. The role that reads them is made when a server opens the store
-- (roles belong to all databases of a PostgreSQL, not to this one).
CREATE SCHEMA console;
CREATE VIEW console.jobs AS SELECT job, owner, user_name, priority, name, state, output, staging, disk_dirs, exit_code,
    error, created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns FROM jobs;
CREATE VIEW console.reports AS SELECT job, report FROM reports;
CREATE VIEW console.owners AS SELECT uuid, pid, started_ns, ended_ns FROM owners;
CREATE VIEW console.stages AS SELECT * FROM stages;
CREATE VIEW console.tasks AS SELECT * FROM tasks;
CREATE VIEW console.attempts AS SELECT * FROM attempts;
CREATE VIEW console.pipelines AS SELECT * FROM pipelines;
CREATE VIEW console.events AS SELECT * FROM events;
CREATE VIEW console.counters AS SELECT * FROM counters;
CREATE VIEW console.parts AS SELECT * FROM parts;
CREATE VIEW console.ifiles AS SELECT * FROM ifiles;
CREATE VIEW console.chunks AS SELECT * FROM chunks;
CREATE VIEW console.runs AS SELECT * FROM runs;
CREATE VIEW console.run_chunks AS SELECT * FROM run_chunks;
CREATE VIEW console.replicas AS SELECT * FROM replicas;
CREATE VIEW console.sources AS SELECT * FROM sources;
CREATE VIEW console.proofs AS SELECT * FROM proofs;
CREATE VIEW console.boundaries AS SELECT * FROM boundaries;
CREATE VIEW console.plans AS SELECT * FROM plans;
CREATE VIEW console.plan_tasks AS SELECT * FROM plan_tasks;
CREATE VIEW console.placements AS SELECT * FROM placements;
CREATE VIEW console.roles AS SELECT * FROM roles;
CREATE VIEW console.users AS SELECT * FROM users;
CREATE VIEW console.tokens AS SELECT token, user_name, created_ns, expires_ns, revoked_ns FROM tokens;
CREATE VIEW console.racks AS SELECT * FROM racks;
CREATE VIEW console.nodes AS SELECT * FROM nodes;
CREATE VIEW console.disks AS SELECT * FROM disks;
CREATE VIEW console.samples AS SELECT * FROM samples;
CREATE VIEW console.audit AS SELECT * FROM audit;
CREATE VIEW console.leads AS SELECT * FROM leads;
