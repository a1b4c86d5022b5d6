-- The number of chunks, the sums of their lengths, and the stop words.
SELECT coalesce(sum(n), 0)::bigint, coalesce(sum(len), 0)::bigint, coalesce(sum(heading_len), 0)::bigint,
       ARRAY(SELECT word FROM stopwords ORDER BY word)
FROM lengths;
