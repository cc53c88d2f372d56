-- What attempts used, by day (UTC, days since 1970), user and job. Rows outlive those of their jobs. A user is empty where
-- the server does not ask for users.
CREATE TABLE usage (
    day BIGINT NOT NULL,
    user_name TEXT COLLATE "C" NOT NULL,
    job BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    cpu_us BIGINT NOT NULL,
    memory_mib_ms BIGINT NOT NULL,
    read_bytes BIGINT NOT NULL,
    shuffled_bytes BIGINT NOT NULL,
    stored_bytes BIGINT NOT NULL,
    moved_bytes BIGINT NOT NULL,
    kept_bytes BIGINT NOT NULL,
    PRIMARY KEY (day, user_name, job)
);
CREATE INDEX usage_by_user ON usage (user_name, day);
CREATE INDEX usage_by_job ON usage (job);
