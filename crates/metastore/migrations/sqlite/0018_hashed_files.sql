-- Files whose records are distributed by their keys: the rule, the empty partitions and the sum of the records, as JSON. NULL: any bytes.
ALTER TABLE file_names ADD COLUMN hashed TEXT;
ALTER TABLE file_put_files ADD COLUMN hashed TEXT;
