-- Each word has one meaning: replicas are of runs, of parts or of intermediate files; a source is also the origin of a record or of a
-- request; a sample is also one of keys; a result is also one of a job. Questions of people find these tables by the names of before too.
ALTER TABLE replicas RENAME TO run_replicas;
ALTER TABLE intermediate_replicas RENAME TO intermediate_file_replicas;
ALTER TABLE sources RENAME TO source_sums;
ALTER TABLE samples RENAME TO machine_samples;
ALTER TABLE results RENAME TO task_results;
ALTER TABLE leads RENAME TO leaderships;

ALTER INDEX samples_by_time RENAME TO machine_samples_by_time;
ALTER SEQUENCE leads_lead_seq RENAME TO leaderships_lead_seq;

-- Constraints, with their indexes. Later versions of PostgreSQL have some for NOT NULL as well.
DO $$
DECLARE renamed RECORD;
BEGIN
    FOR renamed IN
        SELECT names.after AS tablename, conname, names.after || substr(conname, length(names.before) + 1) AS newname
        FROM (VALUES ('replicas', 'run_replicas'), ('intermediate_replicas', 'intermediate_file_replicas'),
            ('sources', 'source_sums'), ('samples', 'machine_samples'), ('results', 'task_results'),
            ('leads', 'leaderships')) AS names (before, after)
        JOIN pg_constraint ON conrelid = to_regclass(names.after) AND starts_with(conname, names.before || '_')
    LOOP
        EXECUTE format('ALTER TABLE %I RENAME CONSTRAINT %I TO %I', renamed.tablename, renamed.conname, renamed.newname);
    END LOOP;
END $$;

-- A renamed view keeps its grants.
ALTER VIEW console.replicas RENAME TO run_replicas;
ALTER VIEW console.intermediate_replicas RENAME TO intermediate_file_replicas;
ALTER VIEW console.sources RENAME TO source_sums;
ALTER VIEW console.samples RENAME TO machine_samples;
ALTER VIEW console.leads RENAME TO leaderships;
-- The names of before. A server that opens the store grants them with the others.
CREATE VIEW console.replicas AS SELECT * FROM console.run_replicas;
CREATE VIEW console.intermediate_replicas AS SELECT * FROM console.intermediate_file_replicas;
CREATE VIEW console.sources AS SELECT * FROM console.source_sums;
CREATE VIEW console.samples AS SELECT * FROM console.machine_samples;
CREATE VIEW console.leads AS SELECT * FROM console.leaderships;
