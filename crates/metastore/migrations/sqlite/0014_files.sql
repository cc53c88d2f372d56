-- The tree of logical files. A name belongs to the versions of the tree from since_version up to, without it, until_version; the current
-- ones have none. item: a directory, or the content of a file.
-- is_removing: names below it are being removed, so that it cannot be read any more. Times are nanoseconds since 1970.
CREATE TABLE file_names (
    directory BIGINT NOT NULL,
    name TEXT NOT NULL,
    since_version BIGINT NOT NULL,
    until_version BIGINT,
    is_directory BIGINT NOT NULL,
    item BIGINT NOT NULL,
    user_name TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    parts BIGINT NOT NULL,
    created_ns BIGINT NOT NULL,
    keep_versions BIGINT NOT NULL,
    is_removing BIGINT NOT NULL,
    PRIMARY KEY (directory, name, since_version)
) WITHOUT ROWID;
CREATE INDEX file_names_by_item ON file_names (item, is_directory);
CREATE INDEX ended_file_names ON file_names (until_version) WHERE until_version IS NOT NULL;
-- Files on disks. part: position within the content, from 0. is_removed: no name needs it, and it is being deleted.
CREATE TABLE concrete_files (
    content BIGINT NOT NULL,
    part BIGINT NOT NULL,
    concrete BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    crc32c BIGINT NOT NULL,
    is_removed BIGINT NOT NULL,
    PRIMARY KEY (content, part)
) WITHOUT ROWID;
CREATE UNIQUE INDEX concrete_files_by_number ON concrete_files (concrete);
CREATE INDEX removed_concrete_files ON concrete_files (concrete) WHERE is_removed = 1;
-- Each change of the tree. files, bytes: put, removed, moved or copied ones.
CREATE TABLE file_commits (
    version BIGINT NOT NULL PRIMARY KEY,
    user_name TEXT NOT NULL,
    verb TEXT NOT NULL,
    path TEXT NOT NULL,
    files BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    created_ns BIGINT NOT NULL
);
CREATE INDEX file_commits_by_path ON file_commits (path, version);
-- Puts under way. source: the files that are put, for a client that goes on after an interruption.
CREATE TABLE file_puts (
    put BIGINT NOT NULL PRIMARY KEY,
    user_name TEXT NOT NULL,
    path TEXT NOT NULL,
    source TEXT NOT NULL,
    created_ns BIGINT NOT NULL
);
-- Files of a put that are on disk already.
CREATE TABLE file_put_files (
    put BIGINT NOT NULL,
    name TEXT NOT NULL,
    content BIGINT NOT NULL,
    parts BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    modified_ns BIGINT NOT NULL,
    PRIMARY KEY (put, name)
) WITHOUT ROWID;
INSERT INTO sequences (name, value) VALUES ('file_put', 0), ('file_version', 0);
