-- Removes what tells of the machine that the file was made on.
DELETE FROM ingest_log;
DELETE FROM ingest_failures;
UPDATE collections SET input_dir = '';
