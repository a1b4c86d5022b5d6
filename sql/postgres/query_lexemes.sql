-- The lexemes of a question's words, of its phrases (as a tsquery each, NULL where nothing is left) and of its prefixes.
SELECT ARRAY(SELECT lexeme FROM unnest(to_tsvector(%(configuration)s::regconfig, %(words)s)) ORDER BY lexeme COLLATE "C"),
       ARRAY(SELECT nullif(phraseto_tsquery(%(configuration)s::regconfig, phrase)::text, '')
             FROM unnest(%(phrases)s::text[]) WITH ORDINALITY AS given(phrase, place) ORDER BY place);
