-- source: the address that a request came from.
ALTER TABLE audit ADD COLUMN source TEXT;
-- A view has the columns that its table had when it was made.
CREATE OR REPLACE VIEW console.audit AS SELECT * FROM audit;
