-- Scripts that put no blanks between words: each pair of neighbouring characters of a run (Han, Kana, Hangul), or each three
-- (Thai, Lao, Burmese, Khmer, whose syllables are longer). A shorter run is its own word.
CREATE OR REPLACE MACRO fts_main_documents.run_pairs(s) AS
    CASE WHEN strlen(s) = length(s) THEN []::VARCHAR[]
         ELSE flatten(list_transform(
            regexp_extract_all(s, '[\x{e00}-\x{eff}\x{1000}-\x{109f}\x{1780}-\x{17ff}]+|[\x{1100}-\x{11ff}\x{3005}-\x{3007}\x{3031}-\x{30fa}\x{30fc}-\x{318f}\x{31a0}-\x{31ff}\x{3400}-\x{9fff}\x{a960}-\x{a97f}\x{ac00}-\x{d7ff}\x{f900}-\x{faff}\x{ff66}-\x{ff9f}\x{20000}-\x{3ffff}]+'),
            lambda run: CASE
                WHEN length(run) < 3 THEN [run]
                WHEN ord(run) BETWEEN 3584 AND 4255 OR ord(run) BETWEEN 6016 AND 6143
                THEN list_transform([string_split(run, '')], lambda one: list_transform(range(3, len(one) + 1), lambda i: one[i - 2] || one[i - 1] || one[i]))[1]
                ELSE list_transform([string_split(run, '')], lambda one: list_transform(range(2, len(one) + 1), lambda i: one[i - 1] || one[i]))[1] END)) END;
