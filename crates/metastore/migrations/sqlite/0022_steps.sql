-- Jobs that are steps of another job, and their numbers, which the kind of that job gives.
ALTER TABLE jobs ADD COLUMN step_of BIGINT;
ALTER TABLE jobs ADD COLUMN step BIGINT;
CREATE INDEX jobs_by_step_of ON jobs (step_of, job) WHERE step_of IS NOT NULL;
