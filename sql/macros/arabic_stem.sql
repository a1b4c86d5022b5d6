-- The stem of a word in Arabic letters by the stemmer light10 (L. S. Larkey, L. Ballesteros and M. E. Connell, "Light stemming
-- for Arabic information retrieval", 2007): letters that are written in several ways as one, without "and" and the articles
-- before it and the common endings after it, of which two letters or more are left.
CREATE OR REPLACE MACRO fts_main_documents.arabic_stem(word) AS
    regexp_replace(
        regexp_replace(translate(word, 'أإآٱىة', 'اااايه'), '^و(.{3,})$', '\1'),
        '^(?:وال|بال|كال|فال|لل|ال)?(.{2,}?)ي?ه?(?:يه)?(?:ين)?(?:ون)?(?:ات)?(?:ان)?(?:ها)?$', '\1');
