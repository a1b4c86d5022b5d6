-- The index of words has each chunk as its text is today, and no other: PostgresStore.migrate(url, reindex=True) makes it anew.
SELECT coalesce(c.node_id, 'rid ' || w.rid) AS node_id
FROM unnest(%(wrong)s::bigint[]) AS w(rid) LEFT JOIN chunks AS c ON c.rid = w.rid
ORDER BY node_id;
