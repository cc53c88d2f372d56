-- Parts of a stage of a flow that lie on a second node. bytes: of the file. single_ns: how long after it was written it lay on one
-- node only; sending_ns: how much of that it was on its way.
CREATE TABLE part_replicas (
    job BIGINT NOT NULL,
    task BIGINT NOT NULL,
    node BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    single_ns BIGINT NOT NULL,
    sending_ns BIGINT NOT NULL,
    PRIMARY KEY (job, task)
);
CREATE VIEW console.part_replicas AS SELECT * FROM part_replicas;
