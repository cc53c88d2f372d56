-- Directories that a node sees and not every other node, as JSON.
ALTER TABLE nodes ADD COLUMN sees TEXT NOT NULL DEFAULT '[]';
