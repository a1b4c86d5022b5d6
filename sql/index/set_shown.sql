-- How a reader sees chunks, and where the text of documents ends that he sees.
UPDATE documents AS d SET shown = n.shown FROM new_shown AS n WHERE n.rid = d.rid AND n.shown IS NOT NULL;

UPDATE source_documents AS s SET shown_end = n.shown_end FROM new_ends AS n WHERE n.doc_id = s.doc_id AND n.shown_end IS NOT NULL;
