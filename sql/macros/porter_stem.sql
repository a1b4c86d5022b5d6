-- The stem of a lower-case word: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, as Snowball's
-- stemmer "porter" has it. A word of one or two letters is no exception ("is" gives "i", "s" an empty stem).
-- A step splits off its longest suffix and rewrites it on a condition. It works in a lambda on a list of one word,
-- because a macro repeats the text of its argument wherever it names it. It reads p['stem'], because p.stem would be
-- a column of the caller's table where that is called p.
-- A Y is a y that is a consonant, as is every character outside aeiouy. In the paper's notation, where a word
-- is [C](VC){m}[V], the conditions read:
--   m > 0   [aeiouy][^aeiouy]
--   m > 1   [aeiouy][^aeiouy]+[aeiouy]+[^aeiouy]
--   *o      [^aeiouy][aeiouy][^aeiouywxY]$
CREATE OR REPLACE MACRO fts_main_documents.porter_stem(word) AS
    [word]
    .list_transform(lambda w: regexp_replace(regexp_replace(w, '^y', 'Y'), '([aeiouy])y', '\1Y', 'g'))

    -- Step 1a: plurals.
    .list_transform(lambda w: regexp_extract(w, '^(?s:(.*?))(sses|ies|ss|s|)$', ['stem', 'suffix']))
    .list_transform(lambda p: p['stem'] || CASE
        WHEN p['suffix'] = 'sses' THEN 'ss'
        WHEN p['suffix'] = 'ies' THEN 'i'
        WHEN p['suffix'] = 's' THEN ''
        ELSE p['suffix'] END)

    -- Step 1b: -eed, and -ed and -ing after a vowel. The stem they leave is mended (hopp to hop, fil to file).
    .list_transform(lambda w: regexp_extract(w, '^(?s:(.*?))(eed|ed|ing|)$', ['stem', 'suffix']))
    .list_transform(lambda p: CASE
        WHEN p['suffix'] = 'eed' AND regexp_matches(p['stem'], '[aeiouy][^aeiouy]') THEN p['stem'] || 'ee'
        WHEN p['suffix'] = 'eed' THEN p['stem'] || 'eed'
        WHEN p['suffix'] = '' OR NOT regexp_matches(p['stem'], '[aeiouy]') THEN p['stem'] || p['suffix']
        WHEN regexp_matches(p['stem'], '(?:at|bl|iz)$') THEN p['stem'] || 'e'
        WHEN regexp_matches(p['stem'], '(?:bb|dd|ff|gg|mm|nn|pp|rr|tt)$') THEN left(p['stem'], -1)
        WHEN regexp_matches(p['stem'], '^[^aeiouy]+[aeiouy][^aeiouywxY]$') THEN p['stem'] || 'e'  -- m = 1 and *o
        ELSE p['stem'] END)

    -- Step 1c: -y after a vowel.
    .list_transform(lambda w: regexp_replace(w, '([aeiouy](?s:.*))[yY]$', '\1i'))

    -- Step 2: double suffixes, where m > 0.
    .list_transform(lambda w: regexp_extract(w, '^(?s:(.*?))(ational|tional|enci|anci|izer|abli|alli|entli|eli|ousli|ization|ation|ator|alism|iveness|fulness|ousness|aliti|iviti|biliti|)$', ['stem', 'suffix']))
    .list_transform(lambda p: p['stem'] || CASE
        WHEN NOT regexp_matches(p['stem'], '[aeiouy][^aeiouy]') THEN p['suffix']
        WHEN p['suffix'] IN ('ational', 'ation', 'ator') THEN 'ate'
        WHEN p['suffix'] = 'tional' THEN 'tion'
        WHEN p['suffix'] = 'enci' THEN 'ence'
        WHEN p['suffix'] = 'anci' THEN 'ance'
        WHEN p['suffix'] IN ('izer', 'ization') THEN 'ize'
        WHEN p['suffix'] = 'abli' THEN 'able'
        WHEN p['suffix'] IN ('alli', 'alism', 'aliti') THEN 'al'
        WHEN p['suffix'] = 'entli' THEN 'ent'
        WHEN p['suffix'] = 'eli' THEN 'e'
        WHEN p['suffix'] IN ('ousli', 'ousness') THEN 'ous'
        WHEN p['suffix'] IN ('iveness', 'iviti') THEN 'ive'
        WHEN p['suffix'] = 'fulness' THEN 'ful'
        WHEN p['suffix'] = 'biliti' THEN 'ble'
        ELSE p['suffix'] END)

    -- Step 3: -ic-, -full, -ness and their like, where m > 0.
    .list_transform(lambda w: regexp_extract(w, '^(?s:(.*?))(icate|ative|alize|iciti|ical|ful|ness|)$', ['stem', 'suffix']))
    .list_transform(lambda p: p['stem'] || CASE
        WHEN NOT regexp_matches(p['stem'], '[aeiouy][^aeiouy]') THEN p['suffix']
        WHEN p['suffix'] = 'alize' THEN 'al'
        WHEN p['suffix'] IN ('icate', 'iciti', 'ical') THEN 'ic'
        ELSE '' END)

    -- Step 4: the last suffix, where m > 1. Step 1a leaves -ou of -ous.
    .list_transform(lambda w: regexp_extract(w, '^(?s:(.*?))(al|ance|ence|er|ic|able|ible|ant|ement|ment|ent|ion|ou|ism|ate|iti|ous|ive|ize|)$', ['stem', 'suffix']))
    .list_transform(lambda p: p['stem'] || CASE
        WHEN NOT regexp_matches(p['stem'], '[aeiouy][^aeiouy]+[aeiouy]+[^aeiouy]') THEN p['suffix']
        WHEN p['suffix'] = 'ion' AND NOT regexp_matches(p['stem'], '[st]$') THEN p['suffix']
        ELSE '' END)

    -- Step 5: a final -e, where m > 1, or m = 1 and not *o. Then one l of -ll, where m > 1.
    .list_transform(lambda w: regexp_extract(w, '^(?s:(.*?))(e|)$', ['stem', 'suffix']))
    .list_transform(lambda p: p['stem'] || CASE
        WHEN regexp_matches(p['stem'], '[aeiouy][^aeiouy]+[aeiouy]+[^aeiouy]') THEN ''
        WHEN regexp_matches(p['stem'], '[^aeiouy][aeiouy][^aeiouywxY]$') THEN p['suffix']
        WHEN regexp_matches(p['stem'], '[aeiouy][^aeiouy]') THEN ''
        ELSE p['suffix'] END)
    .list_transform(lambda w: regexp_replace(w, '([aeiouy][^aeiouy]+[aeiouy](?s:.*)l)l$', '\1'))
    .list_transform(lambda w: replace(w, 'Y', 'y'))[1];
