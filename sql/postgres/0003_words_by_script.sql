-- Words by their script, as the macro script_stem of a DuckDB file does it with stemmers of its own: each run of Greek, Cyrillic, Arabic or
-- Devanagari letters gives its stem by Postgres' stemmer of that language. The stop words of these languages stay. The
-- configuration of the store stems the rest, and these letters where it is of a language that is written in them.
CREATE FUNCTION stemmed(words text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(words) = length(words) OR 'english' = 'simple' OR words !~ '[\u0370-\u052f\u0600-\u06ff\u0900-\u097f]' THEN words ELSE (
        SELECT string_agg(CASE
            WHEN run[1] ~ '^[\u0370-\u03ff]' AND 'english' <> 'greek' THEN coalesce((ts_lexize('greek_stem', lower(run[1])))[1], run[1])
            WHEN run[1] ~ '^[\u0400-\u052f]' AND 'english' NOT IN ('russian', 'serbian') THEN coalesce((ts_lexize('russian_stem', lower(run[1])))[1], run[1])
            WHEN run[1] ~ '^[\u0600-\u06ff]' AND 'english' <> 'arabic' THEN coalesce((ts_lexize('arabic_stem', run[1]))[1], run[1])
            WHEN run[1] ~ '^[\u0900-\u097f]' AND 'english' NOT IN ('hindi', 'nepali') THEN coalesce((ts_lexize('hindi_stem', run[1]))[1], run[1])
            ELSE run[1] END, '' ORDER BY place)
        FROM regexp_matches(words, '[\u0370-\u03ff]+|[\u0400-\u052f]+|[\u0600-\u06ff]+|[\u0900-\u097f]+|[^\u0370-\u052f\u0600-\u06ff\u0900-\u097f]+', 'g')
             WITH ORDINALITY AS runs(run, place)) END;

DO $$
DECLARE
    indexed boolean := to_regclass('chunks_lexemes') IS NOT NULL;
BEGIN
    ALTER TABLE chunks DROP COLUMN lexemes;
    ALTER TABLE chunks ADD COLUMN lexemes tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english', stemmed(folded(heading_text(heading_path, chunk_index, metadata, tags)))), 'A')
        || setweight(to_tsvector('english', stemmed(folded(coalesce(replace(shown, chr(173), ''), content)))), 'D')
    ) STORED;
    IF indexed THEN
        CREATE INDEX chunks_lexemes ON chunks USING gin (lexemes);
    END IF;
END $$;
