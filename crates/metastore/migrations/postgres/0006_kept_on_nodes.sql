-- Intermediate data that nodes of a cluster keep of jobs that are over.

-- A directory on a disk of a node. made_by: the node whose numbers its runs have. incarnation, disk: of that node; with
-- the job they name the directory. node: who told of it last, a later process on the same disk perhaps.
CREATE TABLE kept_dirs (
    job BIGINT NOT NULL,
    incarnation TEXT NOT NULL,
    disk BIGINT NOT NULL,
    made_by BIGINT NOT NULL,
    node BIGINT NOT NULL,
    node_name TEXT NOT NULL,
    path TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (job, incarnation, disk)
);

-- kept_bytes: of all these directories; null where a job keeps nothing there.
ALTER TABLE jobs ADD COLUMN kept_bytes BIGINT;

CREATE VIEW console.kept_dirs AS SELECT * FROM kept_dirs;
CREATE OR REPLACE VIEW console.jobs AS SELECT job, owner, user_name, priority, name, state, output, staging, disk_dirs,
    exit_code, error, created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes FROM jobs;
