-- Texts that have the words of new_labels(cluster, label), for spellings: of each word the first 200 chunks with their headings.
CREATE OR REPLACE TEMP VIEW labelled_texts AS
WITH wanted AS (
    SELECT DISTINCT unnest(string_split(label, ', ')) AS word FROM new_labels
), chunks AS (
    SELECT p.termid, p.rid
    FROM wanted AS l JOIN fts_main_documents.words AS w ON w.word = l.word JOIN fts_main_documents.dict AS d ON d.term = w.term
         JOIN fts_main_documents.postings AS p ON p.termid = d.termid
    QUALIFY row_number() OVER (PARTITION BY p.termid ORDER BY p.rid) <= 200
)
SELECT concat_ws(' ', d.text, array_to_string(d.heading_path, ' ')) AS text
FROM documents AS d WHERE d.rid IN (SELECT rid FROM chunks);
