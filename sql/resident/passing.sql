-- The chunks that pass filters, see passes.
SELECT d.rid FROM documents AS d WHERE passes(d.rid, d.collection, d.tags, $passing, $collection, $tags_any, $tags_all);
