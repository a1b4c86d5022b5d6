-- A text as its words are read from it, as the macro composed of a DuckDB file has it but for accents: full-width and
-- half-width forms, ligatures, x², ①, ㎏ as their plain characters (NFKC), ß as ss, letters such as ł, ø and æ as those of ASCII,
-- without what has no width. sqlrag/engines/postgres/words.py does the same to questions.
CREATE FUNCTION folded(words text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(words) = length(words) THEN words ELSE
        translate(replace(replace(replace(replace(replace(replace(replace(replace(normalize(regexp_replace(regexp_replace(translate(words, '™℠', '  '),
                 '([\u00bc-\u00be\u2150-\u215f\u2189\u2460-\u2473\u24b6-\u24ea\u3244-\u3247\u3251-\u327e\u3280-\u32bf\u32d0-\u32fe\U0001f12b-\U0001f12e\U0001f130-\U0001f14f\U0001f190\U0001f200-\U0001f202\U0001f210-\U0001f23b\U0001f250-\U0001f251])', ' \1 ', 'g'),
                 '[\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+', '', 'g'), NFKC), 'ß', 'ss'), 'ẞ', 'SS'), 'æ', 'ae'), 'Æ', 'Ae'), 'œ', 'oe'), 'Œ', 'Oe'), 'þ', 'th'), 'Þ', 'Th'),
            'øØłŁđĐðÐħĦŧŦŋŊıĸёЁς', 'oOlLdDdDhHtTnNikеЕσ') END;

-- What counts as the headings of a chunk, as the macro heading_text of a DuckDB file has it: its heading path and, for the
-- first chunk of a document, what the front matter says of the page. A title that heads the path is not repeated.
CREATE FUNCTION heading_text(path text[], number integer, metadata jsonb, labels text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_to_string(path, ' ') || CASE WHEN number > 0 THEN '' ELSE ' ' || array_to_string(
        ARRAY(
            SELECT CASE jsonb_typeof(metadata -> name)
                WHEN 'array' THEN array_to_string(ARRAY(SELECT jsonb_array_elements_text(metadata -> name)), ' ')
                WHEN 'object' THEN NULL
                ELSE CASE WHEN (metadata ->> name) = ANY (path) THEN NULL ELSE metadata ->> name END
            END
            FROM unnest(ARRAY['title', 'description', 'keywords', 'author', 'aliases']) WITH ORDINALITY AS names(name, place)
            ORDER BY place
        ) || labels, ' ') END;

-- What is indexed is the text as a reader of the page sees it: shown, as in a DuckDB file, NULL where that is the content.
ALTER TABLE chunks ADD COLUMN shown text;

DO $$
DECLARE
    indexed boolean := to_regclass('chunks_lexemes') IS NOT NULL;
BEGIN
    ALTER TABLE chunks DROP COLUMN lexemes;
    ALTER TABLE chunks ADD COLUMN lexemes tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english', folded(heading_text(heading_path, chunk_index, metadata, tags))), 'A')
        || setweight(to_tsvector('english', folded(coalesce(replace(shown, chr(173), ''), content))), 'D')
    ) STORED;
    IF indexed THEN
        CREATE INDEX chunks_lexemes ON chunks USING gin (lexemes);
    END IF;
END $$;
