-- Gives a store its stop words.
WITH gone AS (DELETE FROM stopwords WHERE word <> ALL(%(words)s::text[]))
INSERT INTO stopwords SELECT DISTINCT unnest(%(words)s::text[]) ON CONFLICT DO NOTHING;
