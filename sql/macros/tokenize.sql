-- The words of a text: plain words first, then the parts of compound names, then pairs from runs without blanks.
-- A word is a run of letters, marks, digits and _ of any script; c++, c# and .net stay whole. The class names what
-- separates words (ASCII and Latin-1 punctuation, then the blocks of punctuation, symbols, private use and emoji) and
-- the scripts of run_pairs: its ranges compile ten times faster than Unicode properties, at every query.
CREATE OR REPLACE MACRO fts_main_documents.tokenize(s) AS
    list_transform(
        regexp_extract_all(s, '[A-Za-z](?:\+\+|#)|\.(?i:net)\b|[^\x{0}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{5e}\x{60}\x{7b}-\x{a9}\x{ab}-\x{b1}\x{b4}\x{b6}-\x{b8}\x{bb}\x{bf}\x{d7}\x{f7}\x{2c2}-\x{2c5}\x{2d2}-\x{2df}\x{37e}\x{387}\x{55a}-\x{55f}\x{589}-\x{58f}\x{5be}\x{5c0}\x{5c3}\x{5f3}-\x{5f4}\x{606}-\x{60f}\x{61b}-\x{61f}\x{66a}-\x{66d}\x{6d4}\x{700}-\x{70d}\x{964}-\x{965}\x{1360}-\x{1368}\x{1680}\x{180e}\x{2000}-\x{206f}\x{207a}-\x{207e}\x{208a}-\x{208e}\x{20a0}-\x{20cf}\x{2190}-\x{245f}\x{249c}-\x{24e9}\x{2500}-\x{2775}\x{2794}-\x{2bff}\x{2e00}-\x{2e2e}\x{2e30}-\x{2fff}\x{3000}-\x{3004}\x{3008}-\x{3020}\x{3030}\x{30fb}\x{fd3e}-\x{fd4f}\x{fe10}-\x{fe1f}\x{fe30}-\x{fe6f}\x{feff}-\x{ff0f}\x{ff1a}-\x{ff20}\x{ff3b}-\x{ff40}\x{ff5b}-\x{ff65}\x{ffe0}-\x{ffff}\x{e000}-\x{f8ff}\x{1f000}-\x{1f0ff}\x{1f110}-\x{1faff}\x{e00}-\x{eff}\x{1000}-\x{109f}\x{1100}-\x{11ff}\x{1780}-\x{17ff}\x{3005}-\x{3007}\x{3031}-\x{30fa}\x{30fc}-\x{318f}\x{31a0}-\x{31ff}\x{3400}-\x{9fff}\x{a960}-\x{a97f}\x{ac00}-\x{d7ff}\x{f900}-\x{faff}\x{ff66}-\x{ff9f}\x{20000}-\x{3ffff}]+')
        || fts_main_documents.compound_parts(s)
        || fts_main_documents.run_pairs(s),
        lambda word: fts_main_documents.fold(word));
