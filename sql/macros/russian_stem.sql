-- The stem of a Russian word in lower case, as Snowball's stemmer "russian" has it. What may be taken off stands after the first
-- vowel, where a bar is put: no word has one, and no ending matches across it. Of the endings of a step the longest is the one
-- that a search from the left finds first.
CREATE OR REPLACE MACRO fts_main_documents.russian_stem(word) AS
    replace([regexp_replace(word, '^([^аеиоуыэюя]*(?:[аеиоуыэюя]|$))', '\1|')]

    -- Gerunds; else a reflexive ending, and one of adjectives (and participles), of verbs, or of nouns.
    .list_transform(lambda w: CASE
        WHEN regexp_matches(w, '(?:[иы]|[ая])в(?:ши(?:сь)?)?$')
        THEN regexp_replace(w, '(?:[иы]|([ая]))в(?:ши(?:сь)?)?$', '\1')
        ELSE list_transform([regexp_replace(w, 'с[яь]$', '')], lambda r: CASE
            WHEN regexp_matches(r, '(?:[ео]го|[ео]му|[иы]ми|[еиыо]й|[еиыо]м|[еиыо]е|[иы]х|[уюео]ю|[ая]я)$')
            THEN regexp_replace(
                regexp_replace(r, '(?:[ео]го|[ео]му|[иы]ми|[еиыо]й|[еиыо]м|[еиыо]е|[иы]х|[уюео]ю|[ая]я)$', ''),
                '(?:[иы]вш|ующ|([ая])(?:ем|нн|вш|ющ|щ))$', '\1')
            WHEN regexp_matches(r, '(?:[иы]л[аио]|[еу]йте|ите|ен[аоы]|ует|уют|[иы]ть|ишь|[еу]й|[иы]л|[иы]м|ен|ят|[иы]т|ую|ю|[ая](?:нно|ешь|ете|йте|л[аио]|н[аоы]|ют|ет|ем|ть|й|л|н))$')
            THEN regexp_replace(r, '(?:[иы]л[аио]|[еу]йте|ите|ен[аоы]|ует|уют|[иы]ть|ишь|[еу]й|[иы]л|[иы]м|ен|ят|[иы]т|ую|ю|([ая])(?:нно|ешь|ете|йте|л[аио]|н[аоы]|ют|ет|ем|ть|й|л|н))$', '\1')
            ELSE regexp_replace(r, '(?:иями|ями|ами|ией|[еои]й|иям|ием|[еоая]м|иях|[ая]х|[ео]в|[иь][еюя]|[еи]и|[аеийоуыьюя])$', '')
            END)[1]
        END)

    -- -и, then -ост after the second syllable, then what is left of superlatives, of -нн and of soft endings.
    .list_transform(lambda w: regexp_replace(
        regexp_replace(
            regexp_replace(w, 'и$', ''),
            '(\|[аеиоуыэюя]*[^аеиоуыэюя]+[аеиоуыэюя]+[^аеиоуыэюя].*)ость?$', '\1'),
        '(?:ейше?|(н)нейше?|(н)н|ь)$', '\1\2'))[1], '|', '');
