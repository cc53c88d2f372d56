-- The files of a cluster stand in the tables of those of a machine. tree: 0 is that of a machine, 1 that of a cluster.
ALTER TABLE file_names ADD COLUMN tree BIGINT NOT NULL DEFAULT 0;
DROP INDEX ended_file_names;
CREATE INDEX ended_file_names ON file_names (tree, until_version) WHERE until_version IS NOT NULL;
-- For the bytes of a user.
CREATE INDEX file_names_by_user ON file_names (user_name, bytes) WHERE tree = 1 AND is_directory = 0;
ALTER TABLE file_commits ADD COLUMN tree BIGINT NOT NULL DEFAULT 0;
-- replicas: wished number of them; 0 for a file of a machine.
ALTER TABLE concrete_files ADD COLUMN replicas BIGINT NOT NULL DEFAULT 0;
DROP INDEX removed_concrete_files;
CREATE INDEX removed_concrete_files ON concrete_files (concrete) WHERE is_removed = 1 AND replicas = 0;
CREATE INDEX removed_cluster_files ON concrete_files (concrete) WHERE is_removed = 1 AND replicas > 0;
-- Puts of a cluster. session: counts the clients that worked on it. next_number: the first number that no concrete file has.
-- is_naming: its names are being stored. version, files, bytes, short_files: set by the commit; short files have fewer replicas than wished.
ALTER TABLE file_puts ADD COLUMN tree BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN session BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN is_directory BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN next_number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN is_naming BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN replicas BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN keep_versions BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN heard_ns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN version BIGINT;
ALTER TABLE file_puts ADD COLUMN files BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE file_puts ADD COLUMN short_files BIGINT NOT NULL DEFAULT 0;
-- Disks of nodes with concrete files. secret_hash: of the secret by which a node shows that it has the disk.
CREATE TABLE file_disks (
    disk BIGINT NOT NULL PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    node_name TEXT NOT NULL,
    rack TEXT NOT NULL,
    secret_hash TEXT NOT NULL
);
-- Concrete files on those disks.
CREATE TABLE concrete_replicas (
    disk BIGINT NOT NULL,
    concrete BIGINT NOT NULL,
    PRIMARY KEY (disk, concrete)
) WITHOUT ROWID;
CREATE INDEX concrete_replicas_by_file ON concrete_replicas (concrete, disk);
INSERT INTO sequences (name, value) VALUES ('file_disk', 0);
