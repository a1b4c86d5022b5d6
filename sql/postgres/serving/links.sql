-- The links of the document of a chunk to others: none, since a store in Postgres keeps no links.
SELECT CAST(NULL AS text) AS url, c.node_id FROM chunks AS c WHERE c.node_id = %(node_id)s AND false ORDER BY c.node_id;
