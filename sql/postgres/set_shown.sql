-- How a reader sees chunks, given as two lists.
UPDATE chunks AS c SET shown = given.shown
FROM unnest(%(rids)s::bigint[], %(shown)s::text[]) AS given(rid, shown) WHERE c.rid = given.rid;
