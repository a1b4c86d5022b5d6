-- The lexemes of a question's words, of its phrases and prefixes, as a tsquery each (NULL where
-- nothing is left).
SELECT ARRAY(SELECT lexeme FROM unnest(to_tsvector(%(configuration)s::regconfig, stemmed(%(words)s))) ORDER BY lexeme COLLATE "C"),
       ARRAY(SELECT nullif(phraseto_tsquery(%(configuration)s::regconfig, stemmed(phrase))::text, '')
             FROM unnest(%(phrases)s::text[]) WITH ORDINALITY AS given(phrase, place) ORDER BY place),
       ARRAY(SELECT nullif(to_tsquery(%(configuration)s::regconfig, stemmed(prefix))::text, '')
             FROM unnest(%(prefixes)s::text[]) WITH ORDINALITY AS given(prefix, place) ORDER BY place);
