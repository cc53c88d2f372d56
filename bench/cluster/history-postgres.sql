-- As history-sqlite.sql, for psql with -v copies=N.
SELECT set_config('history.copies', :'copies', false);

CREATE TEMP TABLE old_jobs AS SELECT * FROM jobs;
CREATE TEMP TABLE old_specs AS SELECT * FROM specs;
CREATE TEMP TABLE old_stages AS SELECT * FROM stages;
CREATE TEMP TABLE old_tasks AS SELECT * FROM tasks;
CREATE TEMP TABLE old_attempts AS SELECT * FROM attempts;
CREATE TEMP TABLE old_events AS SELECT * FROM events WHERE job IS NOT NULL;

-- One copy after another, so that keys come in ascending order.
DO $$
DECLARE
    jobs_step CONSTANT bigint := (SELECT value FROM sequences WHERE name = 'job');
    events_step CONSTANT bigint := (SELECT max(event) FROM events);
    jobs_more bigint;
BEGIN
    FOR copy IN 1..current_setting('history.copies')::bigint LOOP
        jobs_more := copy * jobs_step;
        INSERT INTO jobs (job, owner, user_name, priority, name, state, output, staging, disk_dirs, exit_code, error, created_ns,
                started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes)
            SELECT job + jobs_more, owner, user_name, priority, name, state, output, staging, disk_dirs, exit_code, error, created_ns,
                started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes FROM old_jobs ORDER BY job;
        INSERT INTO specs (job, spec) SELECT job + jobs_more, spec FROM old_specs ORDER BY job;
        INSERT INTO stages (job, stage, name, state, task_count, expanded_ns, ended_ns)
            SELECT job + jobs_more, stage, name, state, task_count, expanded_ns, ended_ns FROM old_stages ORDER BY job;
        INSERT INTO tasks (job, stage, task, state, winner, payload)
            SELECT job + jobs_more, stage, task, state, winner, payload FROM old_tasks ORDER BY job;
        INSERT INTO attempts (job, stage, task, attempt, node, slot, state, assigned_ns, started_ns, opened_ns, ended_ns, failure)
            SELECT job + jobs_more, stage, task, attempt, node, slot, state, assigned_ns, started_ns, opened_ns, ended_ns, failure
            FROM old_attempts ORDER BY job;
        INSERT INTO events (event, time_ns, job, stage, task, attempt, kind, detail) OVERRIDING SYSTEM VALUE
            SELECT event + copy * events_step, time_ns, job + jobs_more, stage, task, attempt, kind, detail
            FROM old_events ORDER BY event;
    END LOOP;
    UPDATE sequences SET value = value + jobs_more WHERE name = 'job';
END
$$;
SELECT setval(pg_get_serial_sequence('events', 'event'), (SELECT max(event) FROM events));

-- What autovacuum and a checkpoint would do during the measurement is done before it.
VACUUM (ANALYZE) jobs, specs, stages, tasks, attempts, events, sequences;
CHECKPOINT;
