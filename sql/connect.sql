-- A search macro of a session over one of a file, for sqlrag.connect and sqlrag.register: its name, its arguments, what it
-- calls with them, and the key of a row where all rows of the file are of one source.
CREATE OR REPLACE TEMP MACRO "name"(/* parameters */) AS TABLE
    SELECT h.* /* row_key */
    FROM "called"(/* arguments */) AS h /* rows */
    ORDER BY h.score DESC, h.doc_id, h.chunk_index;
