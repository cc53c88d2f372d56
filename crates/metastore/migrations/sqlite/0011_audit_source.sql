-- source: the address that a request came from.
ALTER TABLE audit ADD COLUMN source TEXT;
