-- Intermediate files of users: one writer, complete when it is closed, never changed. node: where it was written, or is read first.
-- job: it goes with that. bytes and crc32c: of what it holds, once it is complete. Times are nanoseconds, since 1970 but for keep_ns.
CREATE TABLE intermediate_files (
    file BIGINT NOT NULL PRIMARY KEY,
    user_name TEXT NOT NULL,
    name TEXT NOT NULL,
    job BIGINT,
    state TEXT NOT NULL,
    node BIGINT NOT NULL,
    bytes BIGINT,
    crc32c BIGINT,
    created_ns BIGINT NOT NULL,
    closed_ns BIGINT,
    keep_ns BIGINT,
    expires_ns BIGINT,
    problem TEXT,
    UNIQUE (user_name, name)
);
-- Those that lie on a second node. bytes: of the file as it is stored. single_ns: how long it lay on one node only.
CREATE TABLE intermediate_replicas (
    file BIGINT NOT NULL PRIMARY KEY,
    node BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    single_ns BIGINT NOT NULL
);
INSERT INTO sequences (name, value) VALUES ('intermediate', 0);
CREATE VIEW console.intermediate_files AS SELECT * FROM intermediate_files;
CREATE VIEW console.intermediate_replicas AS SELECT * FROM intermediate_replicas;
