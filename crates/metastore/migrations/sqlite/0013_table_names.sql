-- Each word has one meaning: replicas are of runs, of parts or of intermediate files; a source is also the origin of a record or of a
-- request; a sample is also one of keys; a result is also one of a job. Questions of people find these tables by the names of before too.
ALTER TABLE replicas RENAME TO run_replicas;
ALTER TABLE intermediate_replicas RENAME TO intermediate_file_replicas;
ALTER TABLE sources RENAME TO source_sums;
ALTER TABLE samples RENAME TO machine_samples;
ALTER TABLE results RENAME TO task_results;
ALTER TABLE leads RENAME TO leaderships;

DROP INDEX samples_by_time;
CREATE INDEX machine_samples_by_time ON machine_samples (time_ns);
