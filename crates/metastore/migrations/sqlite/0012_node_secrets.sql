-- secret_hash: SHA-256 of the secret that a node got when it joined. join_token: the token that it joined by, where it had one of its own.
ALTER TABLE nodes ADD COLUMN secret_hash BLOB;
ALTER TABLE nodes ADD COLUMN join_token TEXT;

-- waits: 1 where the job of one task is in no stage yet, because very many of its user are before it.
ALTER TABLE jobs ADD COLUMN waits BIGINT;

-- Public keys of what servers sign for data ports, newest last. The private ones are in no table. withdrawn_ns: since when nothing
-- that nodes show of it is good.
CREATE TABLE data_keys (
    data_key INTEGER PRIMARY KEY,
    public_key TEXT NOT NULL UNIQUE,
    made_ns INTEGER NOT NULL,
    withdrawn_ns INTEGER
);
