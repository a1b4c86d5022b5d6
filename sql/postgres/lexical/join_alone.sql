-- Whether this transaction is the one that joins rows of the index; until it ends no other is.
SELECT pg_try_advisory_xact_lock(hashtext('sqlrag rows ' || current_schema()));
