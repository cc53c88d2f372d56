-- The columns of kept I-files stand in the first migration here; this is their index.
CREATE INDEX jobs_by_ifiles ON jobs (job) WHERE ifiles IN ('kept', 'removing');
