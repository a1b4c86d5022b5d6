-- The words that are terms of their own: the stop words of a new store, whatever its table is changed to, and "his", which Porter
-- has as "hi".
CREATE OR REPLACE MACRO fts_main_documents.own_terms() AS
    string_split('a about an and are as at be been but by can do does for from had has have his how i if in into is it its me my no not of on or our s should so such than that the their them then there these they this to was we were what when where which who why will with would you your', ' ');
