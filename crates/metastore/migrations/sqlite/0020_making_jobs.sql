-- The job whose output a change stored, its name, and the number of the put by which its files are found. NULL: no job made it.
ALTER TABLE file_commits ADD COLUMN job BIGINT;
ALTER TABLE file_commits ADD COLUMN job_name TEXT;
ALTER TABLE file_commits ADD COLUMN put BIGINT;
CREATE INDEX file_commits_by_put ON file_commits (put) WHERE put IS NOT NULL;
