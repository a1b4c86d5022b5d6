-- Every vector, as it is stored.
SELECT rid, embedding FROM documents;
