-- Whether a chunk is of the collections (a list), has any of tags_any and all of tags_all, and a 1 at the place rid of the
-- bits in passing, see passing_chunks. NULL leaves a condition out, and costs nothing: it is folded before the scan.
CREATE OR REPLACE MACRO passes(rid, chunk_collection, chunk_tags, passing, collection, tags_any, tags_all) AS
    (collection IS NULL OR list_contains(collection, chunk_collection))
    AND (tags_any IS NULL OR list_has_any(chunk_tags, tags_any))
    AND (tags_all IS NULL OR list_has_all(chunk_tags, tags_all))
    AND coalesce(get_bit(CAST(passing AS BIT), rid), 1) = 1;
