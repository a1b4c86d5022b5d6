-- How many chunks hold each of some words, counted no further than most, and how many chunks there are.
SELECT place, (SELECT count(*) FROM (SELECT FROM chunks WHERE lexemes @@ given.query::tsquery LIMIT %(most)s) AS held),
       (SELECT count(*) FROM chunks)
FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS given(query, place)
ORDER BY place;
