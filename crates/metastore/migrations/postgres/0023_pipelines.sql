-- Steps that run with the step of a job as one pipeline: their numbers, with spaces between them.
ALTER TABLE jobs ADD COLUMN steps_beside TEXT;
CREATE OR REPLACE VIEW console.jobs AS SELECT job, owner, user_name, priority, name, state, output, staging, disk_dirs,
    exit_code, CASE WHEN error IS NOT NULL AND EXISTS (SELECT 1 FROM attempts u WHERE u.job = jobs.job
        AND u.failure LIKE '{"blame":"user_program"%'
        AND position(u.failure::jsonb ->> 'message' IN jobs.error) > 0) THEN NULL ELSE error END AS error,
    created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes, waits,
    step_of, step, steps_beside FROM jobs;
