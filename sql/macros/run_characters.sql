-- What else a run without blanks is found by, so that a short question finds it: the single characters, and in the scripts of which
-- run_pairs takes three the pairs.
CREATE OR REPLACE MACRO fts_main_documents.run_characters(s) AS
    CASE WHEN strlen(s) = length(s) THEN []::VARCHAR[]
         ELSE flatten(list_transform(
            regexp_extract_all(s, '[\x{e00}-\x{eff}\x{1000}-\x{109f}\x{1780}-\x{17ff}]{2,}|[\x{1100}-\x{11ff}\x{3005}-\x{3007}\x{3031}-\x{30fa}\x{30fc}-\x{318f}\x{31a0}-\x{31ff}\x{3400}-\x{9fff}\x{a960}-\x{a97f}\x{ac00}-\x{d7ff}\x{f900}-\x{faff}\x{ff66}-\x{ff9f}\x{20000}-\x{3ffff}]{2,}'),
            lambda run: string_split(run, '')
                || CASE
                    WHEN length(run) > 2 AND (ord(run) BETWEEN 3584 AND 4255 OR ord(run) BETWEEN 6016 AND 6143)
                    THEN list_transform([string_split(run, '')], lambda one: list_transform(range(2, len(one) + 1), lambda i: one[i - 1] || one[i]))[1]
                    ELSE [] END)) END;
