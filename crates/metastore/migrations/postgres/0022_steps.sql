-- Jobs that are steps of another job, and their numbers, which the kind of that job gives.
ALTER TABLE jobs ADD COLUMN step_of BIGINT;
ALTER TABLE jobs ADD COLUMN step BIGINT;
CREATE INDEX jobs_by_step_of ON jobs (step_of, job) WHERE step_of IS NOT NULL;
CREATE OR REPLACE VIEW console.jobs AS SELECT job, owner, user_name, priority, name, state, output, staging, disk_dirs,
    exit_code, CASE WHEN error IS NOT NULL AND EXISTS (SELECT 1 FROM attempts u WHERE u.job = jobs.job
        AND u.failure LIKE '{"blame":"user_program"%'
        AND position(u.failure::jsonb ->> 'message' IN jobs.error) > 0) THEN NULL ELSE error END AS error,
    created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes, waits,
    step_of, step FROM jobs;
