-- How much text is on each page of the PDF files? A page without any is missing: it may be a picture.
SELECT doc_id, page, count(*) AS chunks, sum(characters) AS characters
FROM chunks
WHERE page IS NOT NULL
GROUP BY doc_id, page
ORDER BY doc_id, page
LIMIT 20;
