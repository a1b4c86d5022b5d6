-- The parts of snake_case, CamelCase and .NET names in a text, folded. An
-- abbreviation inside a word (mRNA, DuckDB) makes no compound: a capital has to begin a part of two letters or more.
CREATE OR REPLACE MACRO fts_main_documents.compound_parts(s) AS
    flatten(list_transform(
        regexp_extract_all(fts_main_documents.composed(s),
            '\.(?i:net)\b|[\w\x{c0}-\x{24f}\x{370}-\x{52f}]*(?:[A-Za-z0-9]_|_[A-Za-z0-9]|[a-z]{2}[A-Z][a-z]|[A-Z]{2}[a-z]{2})[\w\x{c0}-\x{24f}\x{370}-\x{52f}]*'),
        lambda name: regexp_extract_all(
            fts_main_documents.fold(regexp_replace(
                regexp_replace(name, '([a-z0-9])([A-Z])', '\1_\2', 'g'),
                '([A-Z]+)([A-Z][a-z]{2})', '\1_\2', 'g')),
            '[^_.]+')));
