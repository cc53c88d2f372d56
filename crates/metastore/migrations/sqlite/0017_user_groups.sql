-- Groups of users, for the rights to stored files.
CREATE TABLE user_groups (
    name TEXT NOT NULL PRIMARY KEY,
    created_ns BIGINT NOT NULL
) WITHOUT ROWID;
CREATE TABLE group_members (
    group_name TEXT NOT NULL REFERENCES user_groups (name),
    user_name TEXT NOT NULL REFERENCES users (name),
    PRIMARY KEY (group_name, user_name)
) WITHOUT ROWID;
CREATE INDEX group_members_by_user ON group_members (user_name, group_name);
-- The groups of readers and writers of a name; NULL is that of the directory. They may name a group that was deleted.
ALTER TABLE file_names ADD COLUMN read_group TEXT;
ALTER TABLE file_names ADD COLUMN write_group TEXT;
CREATE INDEX file_names_by_read_group ON file_names (read_group) WHERE read_group IS NOT NULL;
CREATE INDEX file_names_by_write_group ON file_names (write_group) WHERE write_group IS NOT NULL;
