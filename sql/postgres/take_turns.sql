-- Waits for those that write to the same documents, which are given by slots in ascending order, or for all writers where slots is NULL.
SELECT CASE WHEN %(slots)s::integer[] IS NULL THEN pg_advisory_xact_lock(hashtext(%(store)s))
            ELSE pg_advisory_xact_lock_shared(hashtext(%(store)s)) END,
       ARRAY(SELECT pg_advisory_xact_lock(hashtext(%(store)s), slot)::text FROM unnest(%(slots)s::integer[]) AS given(slot));
