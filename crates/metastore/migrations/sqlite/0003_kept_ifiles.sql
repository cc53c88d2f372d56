-- What a timeline needs to know of an attempt, and what is kept of the data of a job that is over.

-- opened_ns: when a reduce attempt had its runs open; before that it waited for memory and read indexes.
ALTER TABLE attempts ADD COLUMN opened_ns BIGINT;

-- reduce_again: the job whose kept I-files this one reads.
-- ifiles: kept, removing (set before the first file goes), removed; null where nothing was kept.
-- keep_until_ns: when kept files may go by themselves; null: never.
ALTER TABLE jobs ADD COLUMN reduce_again BIGINT;
ALTER TABLE jobs ADD COLUMN ifiles TEXT;
ALTER TABLE jobs ADD COLUMN keep_until_ns BIGINT;
CREATE INDEX jobs_by_ifiles ON jobs (ifiles);
CREATE INDEX jobs_by_reduce_again ON jobs (reduce_again);

-- Jobs of earlier versions kept their files for good where they were told to and came to an end. A quote within a
-- value is escaped, so that the text can only be the field itself.
UPDATE jobs SET ifiles = 'kept'
    WHERE cleaned_ns IS NOT NULL AND state IN ('succeeded', 'failed') AND spec LIKE '%"keep_ifiles":true%';
