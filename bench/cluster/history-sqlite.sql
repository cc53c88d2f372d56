-- Multiplies the finished jobs of a store: temp.asked says how many copies are made of those that `sailfish bench jobs` left, each
-- with all rows that a finished job of one task has. No server runs, and all jobs are cleaned. The numbers that a server takes
-- next lie behind those of the copies.
PRAGMA journal_mode = DELETE;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -500000;

-- The rows to copy, apart from the tables that grow; job and event of a copy lie so many numbers higher than those of the last one.
CREATE TEMP TABLE step AS
    SELECT (SELECT value FROM main.sequences WHERE name = 'job') AS jobs, (SELECT max(event) FROM main.events) AS events;
CREATE TEMP TABLE copies AS
    WITH RECURSIVE numbers (copy) AS (SELECT 1 UNION ALL SELECT copy + 1 FROM numbers WHERE copy < (SELECT copies FROM asked))
    SELECT copy * step.jobs AS jobs, copy * step.events AS events FROM numbers CROSS JOIN step;
CREATE TEMP TABLE old_jobs AS SELECT * FROM main.jobs ORDER BY job;
CREATE TEMP TABLE old_specs AS SELECT * FROM main.specs ORDER BY job;
CREATE TEMP TABLE old_stages AS SELECT * FROM main.stages ORDER BY job;
CREATE TEMP TABLE old_tasks AS SELECT * FROM main.tasks ORDER BY job;
CREATE TEMP TABLE old_attempts AS SELECT * FROM main.attempts ORDER BY job;
CREATE TEMP TABLE old_events AS SELECT * FROM main.events WHERE job IS NOT NULL ORDER BY event;

-- CROSS JOIN keeps this order of the loops, so that keys come in ascending order.
BEGIN;
INSERT INTO main.jobs SELECT job + copies.jobs, owner, user_name, priority, name, state, output, staging, disk_dirs, exit_code, error,
    created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes FROM copies CROSS JOIN old_jobs;
INSERT INTO main.specs SELECT job + copies.jobs, spec FROM copies CROSS JOIN old_specs;
INSERT INTO main.stages SELECT job + copies.jobs, stage, name, state, task_count, expanded_ns, ended_ns
    FROM copies CROSS JOIN old_stages;
INSERT INTO main.tasks SELECT job + copies.jobs, stage, task, state, winner, payload FROM copies CROSS JOIN old_tasks;
INSERT INTO main.attempts SELECT job + copies.jobs, stage, task, attempt, node, slot, state, assigned_ns, started_ns, opened_ns,
    ended_ns, failure FROM copies CROSS JOIN old_attempts;
INSERT INTO main.events SELECT event + copies.events, time_ns, job + copies.jobs, stage, task, attempt, kind, detail
    FROM copies CROSS JOIN old_events;
UPDATE main.sequences SET value = value + (SELECT max(jobs) FROM copies) WHERE name = 'job';
COMMIT;
PRAGMA journal_mode = WAL;
