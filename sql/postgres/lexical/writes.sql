-- How many rows writers have left that are not full, how many chunks were removed since rows were last joined, and how many are there.
SELECT count(*) FILTER (WHERE abs(n) < %(full)s), coalesce(-sum(n) FILTER (WHERE n < 0), 0), coalesce(sum(n), 0)
FROM lengths;
