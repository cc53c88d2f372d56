-- secret_hash: SHA-256 of the secret that a node got when it joined. join_token: the token that it joined by, where it had one of its own.
ALTER TABLE nodes ADD COLUMN secret_hash BYTEA;
ALTER TABLE nodes ADD COLUMN join_token TEXT;

-- Public keys of what servers sign for data ports, newest last. The private ones are in no table. withdrawn_ns: since when nothing
-- that nodes show of it is good.
CREATE TABLE data_keys (
    data_key BIGINT PRIMARY KEY,
    public_key TEXT NOT NULL UNIQUE,
    made_ns BIGINT NOT NULL,
    withdrawn_ns BIGINT
);
