-- What a notebook shows of a file: one row.
SELECT s.documents, s.chunks, s.embedding_model, s.dimensions, s.failures,
       (SELECT bool_and(i.in_step) FROM index_status AS i) AS in_step,
       (SELECT string_agg(c.collection || ' (' || c.chunks || ')', ', ' ORDER BY c.collection)
        FROM (SELECT d.collection, count(*) AS chunks FROM documents AS d GROUP BY d.collection) AS c) AS collections
FROM corpus_stats AS s;
