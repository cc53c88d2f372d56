-- The last finished run of each step that is remembered: the contents that it read and wrote. A step is known by its user
-- and the path of its first output.
CREATE TABLE finished_runs (
    user_name TEXT COLLATE "C" NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    job BIGINT NOT NULL,
    ended_ns BIGINT NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (user_name, path)
);
CREATE VIEW console.finished_runs AS SELECT user_name, path, job, ended_ns FROM finished_runs;
