-- The rows are narrow here from the first migration on. This adds what a restarted server must know besides.

-- What the winner of a task gave back, as JSON, where a restarted server could not tell it from other rows; gone
-- when the job is over.
CREATE TABLE results (
    job BIGINT NOT NULL,
    stage BIGINT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (job, stage, task)
);

-- Versions of rows that no one sees any more go soon: a queue is slow when its index is full of them.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stages SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tasks SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE attempts SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
