-- What has to be done with each row of the source: "place" numbers those to be written in the order of the source. The
-- twin of a row is the first to be written that has the same text.
CREATE TABLE work AS
WITH differing AS (
    SELECT n.ordinal, n.doc_id, n.checksum, n.row_hash,
           CASE WHEN f.doc_id IS NOT NULL THEN 'foreign'
                WHEN o.doc_id IS NULL THEN 'added'
                WHEN o.checksum IS DISTINCT FROM n.checksum THEN 'changed'
                WHEN o.row_hash IS DISTINCT FROM n.row_hash THEN 'columns'
                ELSE 'unchanged' END AS kind
    FROM staged AS n LEFT JOIN stored AS o ON o.doc_id = n.doc_id LEFT JOIN foreign_documents AS f ON f.doc_id = n.doc_id
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY ordinal) - 1 AS place FROM differing WHERE kind <> 'unchanged'
), twins AS (
    SELECT checksum, min(place) AS twin_place, arg_min(doc_id, place) AS twin
    FROM numbered WHERE kind IN ('added', 'changed') GROUP BY checksum HAVING count(*) > 1
)
SELECT n.*, t.twin_place, t.twin FROM numbered AS n LEFT JOIN twins AS t ON t.checksum = n.checksum AND n.kind <> 'foreign'
ORDER BY n.place;
CREATE TABLE gone AS SELECT doc_id FROM stored WHERE doc_id NOT IN (SELECT doc_id FROM staged) ORDER BY doc_id;
