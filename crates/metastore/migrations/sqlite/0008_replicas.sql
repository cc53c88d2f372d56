-- Runs that lie on a second node. state: complete; standing, read in place of a run that is gone; lost. chunks: those that are in the
-- run, as JSON: it may be replicated before the seal tells of it. bytes: of the file. single_ns: how long after it was sorted it lay
-- on one node only; sending_ns: how much of that it was on its way. (The table of before was never written.)
DROP TABLE replicas;
CREATE TABLE replicas (
    job BIGINT NOT NULL,
    run BIGINT NOT NULL,
    node BIGINT NOT NULL,
    state TEXT NOT NULL,
    chunks TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    single_ns BIGINT NOT NULL,
    sending_ns BIGINT NOT NULL,
    PRIMARY KEY (job, run, node)
) WITHOUT ROWID;
