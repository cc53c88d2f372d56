-- expires_ns: time after which the name is removed, nanoseconds since 1970; null: never. ttl_ns: of a put, counts from its commit.
ALTER TABLE file_names ADD COLUMN expires_ns BIGINT;
ALTER TABLE file_puts ADD COLUMN ttl_ns BIGINT;
CREATE INDEX expiring_file_names ON file_names (tree, expires_ns) WHERE until_version IS NULL AND expires_ns IS NOT NULL;
-- Numbers of puts that disks have and the store never gave: it was restored from an older backup. Files with them stay.
CREATE TABLE foreign_file_puts (
    first_put BIGINT NOT NULL PRIMARY KEY,
    last_put BIGINT NOT NULL
) WITHOUT ROWID;
