-- Scripts that put no blanks between words (Han, Kana, Hangul, Thai, Lao, Khmer, Burmese): each pair of neighbouring
-- characters; a lone character is its own pair.
CREATE OR REPLACE MACRO fts_main_documents.run_pairs(s) AS
    CASE WHEN strlen(s) = length(s) THEN []::VARCHAR[]
         ELSE flatten(list_transform(
            regexp_extract_all(s, '[\x{e00}-\x{eff}\x{1000}-\x{109f}\x{1100}-\x{11ff}\x{1780}-\x{17ff}\x{3005}-\x{3007}\x{3031}-\x{30fa}\x{30fc}-\x{318f}\x{31a0}-\x{31ff}\x{3400}-\x{9fff}\x{a960}-\x{a97f}\x{ac00}-\x{d7ff}\x{f900}-\x{faff}\x{ff66}-\x{ff9f}\x{20000}-\x{3ffff}]+'),
            lambda run: list_transform(range(1, greatest(length(run), 2)), lambda i: run[i:i + 1]))) END;
