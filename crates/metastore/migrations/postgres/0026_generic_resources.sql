-- Amounts of the generic resources of a node by name, as JSON.
ALTER TABLE nodes ADD COLUMN resources TEXT NOT NULL DEFAULT '{}';
