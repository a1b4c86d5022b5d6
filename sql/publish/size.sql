-- What is to be published of the collections, all if NULL: documents, chunks, and the bytes of the vectors and of the texts.
SELECT count(DISTINCT d.doc_id) AS documents, count(*) AS chunks, coalesce(sum(4 * len(d.embedding)), 0) AS vector_bytes,
       coalesce(sum(strlen(d.text) + coalesce(strlen(d.shown), 0)), 0)
       + (SELECT coalesce(sum(strlen(s.text)), 0) FROM source_documents AS s
          WHERE CAST($collection AS VARCHAR[]) IS NULL OR list_contains($collection, s.collection)) AS text_bytes
FROM documents AS d
WHERE CAST($collection AS VARCHAR[]) IS NULL OR list_contains($collection, d.collection);
