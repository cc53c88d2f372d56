-- Steps that run with the step of a job as one pipeline: their numbers, with spaces between them.
ALTER TABLE jobs ADD COLUMN steps_beside TEXT;
