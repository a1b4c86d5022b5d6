-- The stem of a word in Devanagari, as Snowball's stemmer "hindi" has it: without the longest of its endings (A. Ramanathan and
-- D. D. Rao, "A lightweight stemmer for Hindi", 2003) that leaves a character. The second list begins with an inherent a: it
-- follows a consonant.
CREATE OR REPLACE MACRO fts_main_documents.hindi_stem(word) AS
    regexp_replace(word, '(.)(?:अताएं|अताओं|अनाएं|अनाओं|आइयाँ|आइयां|आइयों|आऊंगा|आऊंगी|आएंगी|आएंगे|ाइयाँ|ाइयां|ाइयों|ाऊंगा|ाऊंगी|ाएंगी|ाएंगे|अतीं|आएगा|आएगी|आओगी|आओगे|आतीं|इयाँ|इयां|इयों|ऊंगा|ऊंगी|एंगी|एंगे|ाएगा|ाएगी|ाओगी|ाओगे|ातीं|ियाँ|ियां|ियों|ूंगा|ूंगी|ेंगी|ेंगे|अकर|अता|अती|अते|अना|अनी|अने|आइए|आईं|आएं|आओं|आकर|आता|आती|आते|आना|आने|आया|उआं|उएं|उओं|एगा|एगी|ओगी|ओगे|ाइए|ाईं|ाएं|ाओं|ाकर|ाता|ाती|ाते|ाना|ाने|ाया|ुआं|ुएं|ुओं|ेगा|ेगी|ोगी|ोगे|आँ|आं|आई|आए|आओ|इए|ईं|एं|ओं|ाँ|ां|ाई|ाए|ाओ|िए|ीं|ें|ों|[अआइईउऊएओािीुूेो्])$|(.[क-नप-रलळवश-ह़ऩऱऴ\x{958}-\x{95f}])(?:ताएं|ताओं|नाएं|नाओं|तीं|कर|ता|ती|ते|ना|नी|ने)$', '\1\2');
