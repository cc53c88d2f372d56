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
    hash BLOB NOT NULL UNIQUE,
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
    node INTEGER PRIMARY KEY,
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
) WITHOUT ROWID;

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
) WITHOUT ROWID;
CREATE INDEX samples_by_time ON samples (time_ns);

-- Who asked for what, and whether it was allowed. Only ever appended to.
CREATE TABLE audit (
    audit INTEGER PRIMARY KEY AUTOINCREMENT,
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
) WITHOUT ROWID;

-- Why an attempt ran where it did, as JSON.
CREATE TABLE placements (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (job, stage, task, attempt)
) WITHOUT ROWID;

-- Each time a server took the lead of the store. applied: number of its last transaction, so that one whose answer
-- was lost is neither repeated nor forgotten.
CREATE TABLE leads (
    lead INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    started_ns BIGINT NOT NULL,
    applied BIGINT NOT NULL
);

INSERT INTO sequences (name, value) VALUES ('node', 0);
