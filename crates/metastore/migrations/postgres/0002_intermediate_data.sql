-- I-files, the chunks and runs that hold them, what each source put into them, and the proof.
-- hash_sum: 16 bytes, big-endian, the wrapping sum of the record hashes.

CREATE TABLE ifiles (
    job BIGINT NOT NULL,
    ifile BIGINT NOT NULL,
    PRIMARY KEY (job, ifile)
);

CREATE TABLE chunks (
    job BIGINT NOT NULL,
    chunk BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    disk BIGINT NOT NULL,
    ifile BIGINT NOT NULL,
    capacity_bytes BIGINT NOT NULL,
    appended_bytes BIGINT NOT NULL,
    oversize BIGINT NOT NULL,
    PRIMARY KEY (job, chunk, generation, disk)
);

-- replaced_by: the run of an extra merge pass that took this one's place.
CREATE TABLE runs (
    job BIGINT NOT NULL,
    run BIGINT NOT NULL,
    ifile BIGINT NOT NULL,
    disk BIGINT NOT NULL,
    records BIGINT NOT NULL,
    record_bytes BIGINT NOT NULL,
    stored_bytes BIGINT NOT NULL,
    in_memory BIGINT NOT NULL,
    block_bytes_max BIGINT NOT NULL,
    replaced_by BIGINT,
    PRIMARY KEY (job, run)
);

CREATE TABLE run_chunks (
    job BIGINT NOT NULL,
    run BIGINT NOT NULL,
    chunk BIGINT NOT NULL,
    PRIMARY KEY (job, run, chunk)
);

-- What the winning attempt of a map task committed, per chunk.
CREATE TABLE sources (
    job BIGINT NOT NULL,
    ifile BIGINT NOT NULL,
    chunk BIGINT NOT NULL,
    map_task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    records BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    hash_sum BYTEA NOT NULL,
    PRIMARY KEY (job, ifile, chunk, map_task, attempt)
);

CREATE TABLE proofs (
    job BIGINT NOT NULL,
    ifile BIGINT NOT NULL,
    committed_records BIGINT NOT NULL,
    committed_bytes BIGINT NOT NULL,
    committed_hash_sum BYTEA NOT NULL,
    merged_records BIGINT NOT NULL,
    merged_bytes BIGINT NOT NULL,
    merged_hash_sum BYTEA NOT NULL,
    agrees BIGINT NOT NULL,
    PRIMARY KEY (job, ifile)
);

-- boundaries: JSON list of keys in hex.
CREATE TABLE boundaries (
    job BIGINT NOT NULL,
    version BIGINT NOT NULL,
    keys TEXT NOT NULL,
    created_ns BIGINT NOT NULL,
    PRIMARY KEY (job, version)
);

-- valid_attempts: JSON list of [map task, attempt].
CREATE TABLE plans (
    job BIGINT NOT NULL,
    version BIGINT NOT NULL,
    target_bytes BIGINT NOT NULL,
    valid_attempts TEXT NOT NULL,
    created_ns BIGINT NOT NULL,
    PRIMARY KEY (job, version)
);

-- ifiles, runs: JSON lists. lower_key is included, upper_key is not; null: no limit.
CREATE TABLE plan_tasks (
    job BIGINT NOT NULL,
    version BIGINT NOT NULL,
    part BIGINT NOT NULL,
    ifiles TEXT NOT NULL,
    runs TEXT NOT NULL,
    lower_key BYTEA,
    upper_key BYTEA,
    expected_bytes BIGINT NOT NULL,
    PRIMARY KEY (job, version, part)
);
