-- secret_hash: SHA-256 of the secret that a node got when it joined. join_token: the token that it joined by, where it had one of its own.
ALTER TABLE nodes ADD COLUMN secret_hash BYTEA;
ALTER TABLE nodes ADD COLUMN join_token TEXT;

-- waits: 1 where the job of one task is in no stage yet, because very many of its user are before it.
ALTER TABLE jobs ADD COLUMN waits BIGINT;

-- Public keys of what servers sign for data ports, newest last. The private ones are in no table. withdrawn_ns: since when nothing
-- that nodes show of it is good.
CREATE TABLE data_keys (
    data_key BIGINT PRIMARY KEY,
    public_key TEXT NOT NULL UNIQUE,
    made_ns BIGINT NOT NULL,
    withdrawn_ns BIGINT
);

-- Words, environment and output of programs are their user's: people who ask with SQL see none of them.
CREATE OR REPLACE VIEW console.tasks AS SELECT job, stage, task, state, winner, NULL::text AS payload FROM tasks;
CREATE OR REPLACE VIEW console.reports AS SELECT job, (report::jsonb - 'mapper' - 'combiner' - 'reducer')::text AS report FROM reports;
CREATE OR REPLACE VIEW console.attempts AS SELECT job, stage, task, attempt, node, slot, state, assigned_ns, started_ns, opened_ns,
    ended_ns, CASE WHEN failure LIKE '{"blame":"user_program"%'
        THEN jsonb_build_object('blame', 'user_program', 'exit_code', failure::jsonb -> 'exit_code',
            'signal', failure::jsonb -> 'signal')::text
        ELSE (failure::jsonb - 'stderr_tail' - 'said')::text END AS failure FROM attempts;
CREATE OR REPLACE VIEW console.events AS SELECT event, time_ns, job, stage, task, attempt, kind,
    CASE WHEN kind IN ('standard output', 'standard error', 'status') THEN NULL
        WHEN kind = 'attempt failed' AND EXISTS (SELECT 1 FROM attempts u WHERE u.job = events.job AND u.stage = events.stage
            AND u.task = events.task AND u.attempt = events.attempt AND u.failure LIKE '{"blame":"user_program"%') THEN NULL
        WHEN kind = 'job failed' AND EXISTS (SELECT 1 FROM attempts u WHERE u.job = events.job
            AND u.failure LIKE '{"blame":"user_program"%'
            AND position(u.failure::jsonb ->> 'message' IN events.detail) > 0) THEN NULL
        ELSE detail END AS detail FROM events;
CREATE OR REPLACE VIEW console.jobs AS SELECT job, owner, user_name, priority, name, state, output, staging, disk_dirs,
    exit_code, CASE WHEN error IS NOT NULL AND EXISTS (SELECT 1 FROM attempts u WHERE u.job = jobs.job
        AND u.failure LIKE '{"blame":"user_program"%'
        AND position(u.failure::jsonb ->> 'message' IN jobs.error) > 0) THEN NULL ELSE error END AS error,
    created_ns, started_ns, ended_ns, cleaned_ns, reduce_again, ifiles, keep_until_ns, kept_bytes, waits FROM jobs;
