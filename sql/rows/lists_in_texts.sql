-- The separator that most texts of a column have, with the first of these, where it is in a fifth of them or more.
SELECT separator, arg_min(s.text, s.place)
FROM (SELECT CAST($column AS VARCHAR) AS text, rowid AS place FROM source WHERE trim(CAST($column AS VARCHAR)) <> '') AS s,
     (SELECT unnest([';', ',', '|']) AS separator)
WHERE contains(s.text, separator)
GROUP BY separator
HAVING count(*) * 5 >= (SELECT count(*) FROM source WHERE trim(CAST($column AS VARCHAR)) <> '')
ORDER BY count(*) DESC, separator;
