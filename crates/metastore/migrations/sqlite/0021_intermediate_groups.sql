-- The groups of readers and writers of an intermediate file. They may name a group that was deleted.
ALTER TABLE intermediate_files ADD COLUMN read_group TEXT;
ALTER TABLE intermediate_files ADD COLUMN write_group TEXT;
-- Lost nodes that had the file, and later nodes on their disks, as JSON.
ALTER TABLE intermediate_files ADD COLUMN former TEXT NOT NULL DEFAULT '[]';
