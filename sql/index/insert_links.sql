INSERT INTO document_links BY NAME FROM new_links ORDER BY doc_id, link_index;
