-- Descriptions of all tables, views, columns and macros, for the tools that show comments: duckdb_tables(), duckdb_columns(),
-- duckdb_views() and duckdb_functions() in the shell. CREATE OR REPLACE drops the comment of what it replaces.

COMMENT ON TABLE documents IS 'One row per chunk: its text, its vector and where it comes from. The first five columns are the published layout.';
COMMENT ON COLUMN documents.node_id IS 'Key of the chunk: doc_id, # and chunk_index, such as guides/setup.md#3.';
COMMENT ON COLUMN documents.text IS 'The chunk, cut out of the text of its source document.';
COMMENT ON COLUMN documents.embedding IS 'Vector of the chunk, of length 1.';
COMMENT ON COLUMN documents.metadata_ IS 'Metadata of the chunk, a flat JSON object. The view chunks leaves out the fields that are there for llama-index.';
COMMENT ON COLUMN documents.doc_id IS 'Source document that the chunk belongs to.';
COMMENT ON COLUMN documents.collection IS 'Collection of the source document.';
COMMENT ON COLUMN documents.chunk_index IS 'Position of the chunk in its document, counted from 0 in reading order.';
COMMENT ON COLUMN documents.i_start IS 'Characters of the source text before the chunk. NULL where its position is not known.';
COMMENT ON COLUMN documents.i_end IS 'Characters of the source text up to the end of the chunk. NULL where its position is not known.';
COMMENT ON COLUMN documents.page IS 'Page on which the chunk begins, counted from 1. NULL where the format has no pages.';
COMMENT ON COLUMN documents.heading_path IS 'Titles above the chunk, outermost first, that of its own section included.';
COMMENT ON COLUMN documents.tags IS 'Tags of the chunk, for the filters tags_any and tags_all.';
COMMENT ON COLUMN documents.checksum IS 'SHA-256 of the bytes of the source file, in hex.';
COMMENT ON COLUMN documents.shown IS 'The chunk as a reader of the page sees it, with soft hyphens in the place of markup, so that offsets stay; then the header row of a table that it continues. NULL where that is text.';
COMMENT ON COLUMN documents.w0 IS 'Signs of 128 dimensions of the embedding (w0: the first 128), one bit each, the first in the highest: 1 where it is 0 or more.';
COMMENT ON COLUMN documents.rid IS 'Number of the chunk, by which the lexical index knows it. It changes when the document is rewritten.';

COMMENT ON TABLE source_documents IS 'One row per source document, with its whole text.';
COMMENT ON COLUMN source_documents.doc_id IS 'Key of the document: its path below the input folder, with collection: before it outside the default collection.';
COMMENT ON COLUMN source_documents.file_path IS 'Path of the file below the folder input_dir of its collection; the whole path where it was read from another one.';
COMMENT ON COLUMN source_documents.file_name IS 'Name of the file without its folder.';
COMMENT ON COLUMN source_documents.text IS 'Text of the whole document after normalising, front matter included. Offsets count its characters.';
COMMENT ON COLUMN source_documents.metadata_ IS 'Metadata of the document, a JSON object; front matter is in it.';
COMMENT ON COLUMN source_documents.created_at IS 'When the document was written to this file, in UTC.';
COMMENT ON COLUMN source_documents.collection IS 'Collection that the document is in.';
COMMENT ON COLUMN source_documents.checksum IS 'SHA-256 of the bytes of the file, in hex.';
COMMENT ON COLUMN source_documents.mime IS 'Media type of the file, by its content.';
COMMENT ON COLUMN source_documents.size_bytes IS 'Size of the file in bytes.';
COMMENT ON COLUMN source_documents.modified_at IS 'When the file was last changed, in UTC. NULL where it is not known.';
COMMENT ON COLUMN source_documents.tags IS 'Tags of the document.';
COMMENT ON COLUMN source_documents.body_start IS 'Characters of the text before its body: those of the front matter.';
COMMENT ON COLUMN source_documents.page_starts IS 'Characters of the text before each page. Empty where the format has no pages.';
COMMENT ON COLUMN source_documents.chunk_policy IS 'How the document was chunked and embedded. NULL where a program gave its chunks and their vectors.';
COMMENT ON COLUMN source_documents.shown_end IS 'Characters of the text up to the last one that a reader sees, where markup alone follows the last chunk. Else NULL.';

COMMENT ON TABLE document_links IS 'One row per link of a Markdown document, images left out. Read it through the view links.';
COMMENT ON COLUMN document_links.doc_id IS 'Document that contains the link.';
COMMENT ON COLUMN document_links.link_index IS 'Position of the link in its document, counted from 0 in the order of the text.';
COMMENT ON COLUMN document_links.i_start IS 'Characters of the source text before the link.';
COMMENT ON COLUMN document_links.i_end IS 'Characters of the source text up to the end of the link.';
COMMENT ON COLUMN document_links.label IS 'Text of the link without markup.';
COMMENT ON COLUMN document_links.url IS 'Destination as it is written, in the link or in the definition that it refers to.';
COMMENT ON COLUMN document_links.target IS 'The doc_id that it points to, whether the file has such a document or not. NULL where it points out of the collection.';
COMMENT ON COLUMN document_links.fragment IS 'What follows # in the destination. NULL where there is none.';
COMMENT ON COLUMN document_links.note IS 'The name of a note, or the end of its path, that a wikilink gives, in lower case; the view links finds its document. NULL for other links.';

COMMENT ON TABLE embedding_metadata IS 'Facts about the file: its model, its chunk policy, its counts. One row per key.';
COMMENT ON COLUMN embedding_metadata.key IS 'Name of the value, such as embedding_model.';
COMMENT ON COLUMN embedding_metadata.value IS 'The value as text; yes and no are True and False.';
COMMENT ON COLUMN embedding_metadata.created_at IS 'When the value was written, in UTC.';

COMMENT ON TABLE collections IS 'One row per collection that was read from a folder.';
COMMENT ON COLUMN collections.collection IS 'Name of the collection.';
COMMENT ON COLUMN collections.input_dir IS 'Folder that it was read from.';
COMMENT ON COLUMN collections.created_at IS 'When it was first read, in UTC.';

COMMENT ON TABLE ingest_failures IS 'One row per file that could not be used, with the reason.';
COMMENT ON COLUMN ingest_failures.doc_id IS 'The doc_id that the document would have.';
COMMENT ON COLUMN ingest_failures.status IS 'failed where it could not be read or embedded, empty where it has no text.';
COMMENT ON COLUMN ingest_failures.reason IS 'What was wrong, as a sentence.';
COMMENT ON COLUMN ingest_failures.failed_at IS 'When it was found, in UTC.';

COMMENT ON TABLE ingest_log IS 'One row per run that read a folder into this file, brought it up to date or deleted documents.';
COMMENT ON COLUMN ingest_log.run_id IS 'Key of the run.';
COMMENT ON COLUMN ingest_log.kind IS 'build, update, delete or reembed.';
COMMENT ON COLUMN ingest_log.started_at IS 'When the run began, in UTC.';
COMMENT ON COLUMN ingest_log.finished_at IS 'When the run ended, in UTC.';
COMMENT ON COLUMN ingest_log.input_dir IS 'Folder that was read. Empty for kinds delete and reembed, and for documents that were passed as bytes.';
COMMENT ON COLUMN ingest_log.collection IS 'Collection that was written to. Empty for kinds delete and reembed.';
COMMENT ON COLUMN ingest_log.files IS 'Number of files that were found to be read.';
COMMENT ON COLUMN ingest_log.documents IS 'Number of documents that were written.';
COMMENT ON COLUMN ingest_log.removed IS 'Number of documents that were removed.';
COMMENT ON COLUMN ingest_log.chunks IS 'Number of chunks that were written.';
COMMENT ON COLUMN ingest_log.embedded IS 'Number of texts that the model embedded, equal ones once.';
COMMENT ON COLUMN ingest_log.embedding_calls IS 'Number of batches in which they were given to the model.';
COMMENT ON COLUMN ingest_log.reused IS 'Number of chunks whose vector was in the file already.';
COMMENT ON COLUMN ingest_log.failed IS 'Number of files that could not be read or embedded; those without text are not counted.';
COMMENT ON COLUMN ingest_log.skipped IS 'Number of files that were skipped, such as those of other formats.';
COMMENT ON COLUMN ingest_log.seconds IS 'Seconds that each stage took, a JSON object.';

COMMENT ON TABLE query_embeddings IS 'Vectors of questions, for the macros that take one in the shell.';
COMMENT ON COLUMN query_embeddings.query_text IS 'The question.';
COMMENT ON COLUMN query_embeddings.embedding IS 'Vector of the question, of length 1.';
COMMENT ON COLUMN query_embeddings.model_name IS 'Model that computed the vector.';
COMMENT ON COLUMN query_embeddings.created_at IS 'When it was computed, in UTC.';

COMMENT ON TABLE corpus_map IS 'The map of the corpus that corpus_map drew: one row per chunk, or per document. Empty until then.';
COMMENT ON COLUMN corpus_map.node_id IS 'The chunk. NULL where the row is a whole document.';
COMMENT ON COLUMN corpus_map.doc_id IS 'The document, or that of the chunk.';
COMMENT ON COLUMN corpus_map.x IS 'Position on the map, left to right.';
COMMENT ON COLUMN corpus_map.y IS 'Position on the map, bottom to top.';
COMMENT ON COLUMN corpus_map.cluster IS 'Number of the cluster, the largest 0. -1 where it is in none.';
COMMENT ON COLUMN corpus_map.label IS 'Words that stand out in the cluster. Empty where it is in none.';

COMMENT ON TABLE fts_main_documents.docs IS 'Lexical index: one row per chunk with its length.';
COMMENT ON COLUMN fts_main_documents.docs.rid IS 'The chunk, as in documents.rid.';
COMMENT ON COLUMN fts_main_documents.docs.len IS 'Length of its text in words; the parts of compound names do not count.';
COMMENT ON COLUMN fts_main_documents.docs.heading_len IS 'Length of its heading path in words; the parts of compound names do not count.';

COMMENT ON TABLE fts_main_documents.words IS 'Lexical index: the words of all chunks and the terms that they count as.';
COMMENT ON COLUMN fts_main_documents.words.word IS 'Word as tokenize gives it, in lower case.';
COMMENT ON COLUMN fts_main_documents.words.term IS 'Its stem.';
COMMENT ON COLUMN fts_main_documents.words.df IS 'Number of chunks that hold the word.';

COMMENT ON TABLE fts_main_documents.dict IS 'Lexical index: one row per term.';
COMMENT ON COLUMN fts_main_documents.dict.termid IS 'Number of the term, by which the postings know it.';
COMMENT ON COLUMN fts_main_documents.dict.term IS 'Stem of one or more words.';
COMMENT ON COLUMN fts_main_documents.dict.df IS 'Number of chunks that hold the term.';

COMMENT ON TABLE fts_main_documents.postings IS 'Lexical index: one row per term and chunk that holds it.';
COMMENT ON COLUMN fts_main_documents.postings.termid IS 'The term, as in dict.';
COMMENT ON COLUMN fts_main_documents.postings.rid IS 'The chunk, as in documents.rid.';
COMMENT ON COLUMN fts_main_documents.postings.tf IS 'How often the term occurs in the text of the chunk.';
COMMENT ON COLUMN fts_main_documents.postings.heading_tf IS 'How often the term occurs in the heading path of the chunk.';
COMMENT ON COLUMN fts_main_documents.postings.len IS 'Length of the text of the chunk in words, as in docs.';
COMMENT ON COLUMN fts_main_documents.postings.heading_len IS 'Length of the heading path of the chunk in words, as in docs.';

COMMENT ON TABLE fts_main_documents.stopwords IS 'Words that a query leaves out where it has others. The index has them; the table may be edited.';
COMMENT ON COLUMN fts_main_documents.stopwords.word IS 'Word as tokenize gives it, in lower case.';

COMMENT ON VIEW fts_main_documents.stats IS 'Lexical index: number and mean length of the chunks, in one row.';
COMMENT ON COLUMN fts_main_documents.stats.num_docs IS 'Number of chunks.';
COMMENT ON COLUMN fts_main_documents.stats.avg_len IS 'Mean length of their texts in words.';
COMMENT ON COLUMN fts_main_documents.stats.avg_heading_len IS 'Mean length of their heading paths in words.';

COMMENT ON VIEW chunks IS 'The chunks for reading, without vectors and machine fields, in reading order.';
COMMENT ON COLUMN chunks.node_id IS 'Key of the chunk: doc_id, # and chunk_index.';
COMMENT ON COLUMN chunks.text IS 'The chunk, cut out of the text of its source document.';
COMMENT ON COLUMN chunks.doc_id IS 'Source document that the chunk belongs to.';
COMMENT ON COLUMN chunks.file_name IS 'Name of the source file without its folder.';
COMMENT ON COLUMN chunks.collection IS 'Collection of the source document.';
COMMENT ON COLUMN chunks.chunk_index IS 'Position of the chunk in its document, counted from 0.';
COMMENT ON COLUMN chunks.heading IS 'Titles above the chunk, outermost first, with > between them.';
COMMENT ON COLUMN chunks.page IS 'Page on which the chunk begins, counted from 1. NULL where the format has no pages.';
COMMENT ON COLUMN chunks.tags IS 'Tags of the chunk.';
COMMENT ON COLUMN chunks.metadata IS 'Metadata of the chunk as JSON, without the fields that are there for llama-index.';
COMMENT ON COLUMN chunks.i_start IS 'Characters of the source text before the chunk. NULL where its position is not known.';
COMMENT ON COLUMN chunks.i_end IS 'Characters of the source text up to the end of the chunk. NULL where its position is not known.';
COMMENT ON COLUMN chunks.characters IS 'Length of the chunk in characters.';
COMMENT ON COLUMN chunks.checksum IS 'SHA-256 of the bytes of the source file, in hex.';
COMMENT ON COLUMN chunks.mime IS 'Media type of the source file.';
COMMENT ON COLUMN chunks.created_at IS 'When the document was written to this file, in UTC.';
COMMENT ON COLUMN chunks.visible IS 'The chunk as a reader of the page sees it: what is embedded and indexed.';

COMMENT ON VIEW sources IS 'The source documents without their texts, and how many chunks each has.';
COMMENT ON COLUMN sources.doc_id IS 'Key of the document.';
COMMENT ON COLUMN sources.file_name IS 'Name of the file without its folder.';
COMMENT ON COLUMN sources.file_path IS 'Path of the file below the folder input_dir of its collection; the whole path where it was read from another one.';
COMMENT ON COLUMN sources.collection IS 'Collection that the document is in.';
COMMENT ON COLUMN sources.mime IS 'Media type of the file.';
COMMENT ON COLUMN sources.chunks IS 'Number of its chunks.';
COMMENT ON COLUMN sources.characters IS 'Length of its text in characters.';
COMMENT ON COLUMN sources.pages_with_text IS 'Number of pages on which a chunk begins; 0 where the format has no pages.';
COMMENT ON COLUMN sources.tags IS 'Tags of the document.';
COMMENT ON COLUMN sources.metadata IS 'Metadata of the document as JSON.';
COMMENT ON COLUMN sources.size_bytes IS 'Size of the file in bytes.';
COMMENT ON COLUMN sources.checksum IS 'SHA-256 of the bytes of the file, in hex.';
COMMENT ON COLUMN sources.modified_at IS 'When the file was last changed, in UTC. NULL where it is not known.';
COMMENT ON COLUMN sources.created_at IS 'When the document was written to this file, in UTC.';

COMMENT ON VIEW corpus_stats IS 'The file in one row of numbers.';
COMMENT ON COLUMN corpus_stats.documents IS 'Number of source documents.';
COMMENT ON COLUMN corpus_stats.chunks IS 'Number of chunks.';
COMMENT ON COLUMN corpus_stats.collections IS 'Number of collections that have documents.';
COMMENT ON COLUMN corpus_stats.characters IS 'Length of all source documents together in characters.';
COMMENT ON COLUMN corpus_stats.mean_chunk_characters IS 'Mean length of a chunk in characters. NULL where there is none.';
COMMENT ON COLUMN corpus_stats.terms IS 'Number of terms in the lexical index.';
COMMENT ON COLUMN corpus_stats.mean_chunk_words IS 'Mean length of a chunk in words, heading path left out.';
COMMENT ON COLUMN corpus_stats.failures IS 'Number of files that could not be used; ingest_failures says why.';
COMMENT ON COLUMN corpus_stats.embedding_model IS 'Model that computed the vectors.';
COMMENT ON COLUMN corpus_stats.dimensions IS 'Length of a vector.';

COMMENT ON VIEW topics IS 'The clusters of the map, the largest first.';
COMMENT ON COLUMN topics.cluster IS 'Number of the cluster, the largest 0.';
COMMENT ON COLUMN topics.label IS 'Words that stand out in it.';
COMMENT ON COLUMN topics.points IS 'Number of its chunks, or documents.';
COMMENT ON COLUMN topics.x IS 'Median of their places, left to right.';
COMMENT ON COLUMN topics.y IS 'Median of their places, bottom to top.';

COMMENT ON VIEW map_status IS 'How the map was drawn and whether all is on it, in one row; none where there is no map.';
COMMENT ON COLUMN map_status.level IS 'chunk or document: what a point is.';
COMMENT ON COLUMN map_status.method IS 'pca or umap: how the places were found.';
COMMENT ON COLUMN map_status.clusters IS 'How the clusters were found. NULL where none were wanted.';
COMMENT ON COLUMN map_status.points IS 'Number of points on the map.';
COMMENT ON COLUMN map_status.missing IS 'Number of chunks, or documents, that were written after the map was drawn.';
COMMENT ON COLUMN map_status.in_step IS 'Whether none is missing.';
COMMENT ON COLUMN map_status.created_at IS 'When the map was drawn, in UTC.';

COMMENT ON VIEW chunk_lengths IS 'How many chunks there are of each length, in classes of 100 characters. Classes without chunks are left out.';
COMMENT ON COLUMN chunk_lengths.from_characters IS 'Shortest length of the class in characters; the longest is 99 more.';
COMMENT ON COLUMN chunk_lengths.chunks IS 'Number of chunks of that length.';

COMMENT ON VIEW ingest_runs IS 'The runs that wrote to the file, the last one first, with their times in seconds.';
COMMENT ON COLUMN ingest_runs.run_id IS 'Key of the run, as in ingest_log and in the log of the program.';
COMMENT ON COLUMN ingest_runs.kind IS 'build, update, delete or reembed.';
COMMENT ON COLUMN ingest_runs.started_at IS 'When the run began, in UTC.';
COMMENT ON COLUMN ingest_runs.total_seconds IS 'How long it took.';
COMMENT ON COLUMN ingest_runs.collection IS 'Collection that was written to. Empty for kinds delete and reembed.';
COMMENT ON COLUMN ingest_runs.files IS 'Number of files that were found to be read.';
COMMENT ON COLUMN ingest_runs.documents IS 'Number of documents that were written.';
COMMENT ON COLUMN ingest_runs.removed IS 'Number of documents that were removed.';
COMMENT ON COLUMN ingest_runs.chunks IS 'Number of chunks that were written.';
COMMENT ON COLUMN ingest_runs.embedded IS 'Number of texts that the model embedded, equal ones once.';
COMMENT ON COLUMN ingest_runs.embedding_calls IS 'Number of batches in which they were given to the model.';
COMMENT ON COLUMN ingest_runs.reused IS 'Number of chunks whose vector was in the file already.';
COMMENT ON COLUMN ingest_runs.failed IS 'Number of files that could not be read or embedded.';
COMMENT ON COLUMN ingest_runs.texts_per_second IS 'Texts embedded in a second of the stage embed. NULL where there was none.';

COMMENT ON VIEW ingest_stages IS 'How long each stage of each run took, the last run first, the longest stage first.';
COMMENT ON COLUMN ingest_stages.run_id IS 'Key of the run.';
COMMENT ON COLUMN ingest_stages.kind IS 'build, update, delete or reembed.';
COMMENT ON COLUMN ingest_stages.stage IS 'Name of the stage: find, read, chunk, embed, store or index.';
COMMENT ON COLUMN ingest_stages.seconds IS 'How long it took.';
COMMENT ON COLUMN ingest_stages.share IS 'Its share of the time of all stages of the run, 0 to 1.';

COMMENT ON VIEW ingest_summary IS 'What the runs did all together, by collection and kind.';
COMMENT ON COLUMN ingest_summary.collection IS 'Collection that was written to. Empty for kinds delete and reembed.';
COMMENT ON COLUMN ingest_summary.kind IS 'build, update, delete or reembed.';
COMMENT ON COLUMN ingest_summary.runs IS 'Number of runs.';
COMMENT ON COLUMN ingest_summary.last_started_at IS 'When the last of them began, in UTC.';
COMMENT ON COLUMN ingest_summary.total_seconds IS 'How long they took together.';
COMMENT ON COLUMN ingest_summary.documents IS 'Number of documents that were written.';
COMMENT ON COLUMN ingest_summary.removed IS 'Number of documents that were removed.';
COMMENT ON COLUMN ingest_summary.chunks IS 'Number of chunks that were written.';
COMMENT ON COLUMN ingest_summary.embedded IS 'Number of texts that the model embedded.';
COMMENT ON COLUMN ingest_summary.reused IS 'Number of chunks whose vector was in the file already.';
COMMENT ON COLUMN ingest_summary.failed IS 'Number of times that a file could not be read or embedded.';
COMMENT ON COLUMN ingest_summary.texts_per_second IS 'Texts embedded in a second of that stage. NULL where none was.';

COMMENT ON VIEW chunk_length_summary IS 'How long the chunks of each collection are, in characters. Quantiles are interpolated.';
COMMENT ON COLUMN chunk_length_summary.collection IS 'Collection of the chunks.';
COMMENT ON COLUMN chunk_length_summary.chunks IS 'Number of chunks.';
COMMENT ON COLUMN chunk_length_summary.mean IS 'Mean length.';
COMMENT ON COLUMN chunk_length_summary.std_dev IS 'Standard deviation of a sample. NULL for a single chunk.';
COMMENT ON COLUMN chunk_length_summary.shortest IS 'Length of the shortest chunk.';
COMMENT ON COLUMN chunk_length_summary.p25 IS 'A quarter of the chunks is no longer than this.';
COMMENT ON COLUMN chunk_length_summary.median IS 'Half of the chunks is no longer than this.';
COMMENT ON COLUMN chunk_length_summary.p75 IS 'Three quarters of the chunks are no longer than this.';
COMMENT ON COLUMN chunk_length_summary.p95 IS 'Of 100 chunks 95 are no longer than this.';
COMMENT ON COLUMN chunk_length_summary.longest IS 'Length of the longest chunk.';

COMMENT ON VIEW document_coverage IS 'How much of each document is in its chunks, the least covered first.';
COMMENT ON COLUMN document_coverage.doc_id IS 'Key of the document.';
COMMENT ON COLUMN document_coverage.chunks IS 'Number of its chunks.';
COMMENT ON COLUMN document_coverage.mean_characters IS 'Mean length of a chunk in characters. NULL where there is none.';
COMMENT ON COLUMN document_coverage.characters IS 'Characters of the text behind the front matter that are not blank, nor markup between the chunks or behind them.';
COMMENT ON COLUMN document_coverage.covered IS 'How many of them are in a chunk; what chunks share counts once. NULL where the place of a chunk is not known.';
COMMENT ON COLUMN document_coverage.coverage IS 'Share of them that is in a chunk, 0 to 1. NULL where it is not known or there are none.';

COMMENT ON VIEW document_freshness IS 'How old each document is, the one that was changed last first, and whether it is known to be out of date.';
COMMENT ON COLUMN document_freshness.doc_id IS 'Key of the document.';
COMMENT ON COLUMN document_freshness.collection IS 'Collection that the document is in.';
COMMENT ON COLUMN document_freshness.modified_at IS 'When the file was last changed, in UTC. NULL where it is not known.';
COMMENT ON COLUMN document_freshness.ingested_at IS 'When the document was written to this file, in UTC.';
COMMENT ON COLUMN document_freshness.age_days IS 'Days from its last change to that of the document changed last. NULL where it is not known.';
COMMENT ON COLUMN document_freshness.stale IS 'Whether a later version of the file could not be used, so that an older one is stored.';
COMMENT ON COLUMN document_freshness.reason IS 'Why it could not be used. NULL where nothing failed.';

COMMENT ON VIEW vocabulary IS 'The terms of the lexical index, those in the most chunks first.';
COMMENT ON COLUMN vocabulary.term IS 'Stem of one or more words.';
COMMENT ON COLUMN vocabulary.words IS 'The words that count as it, those in the most chunks first.';
COMMENT ON COLUMN vocabulary.df IS 'Number of chunks that hold it in their text or headings.';
COMMENT ON COLUMN vocabulary.share IS 'Share of all chunks that hold it, 0 to 1.';
COMMENT ON COLUMN vocabulary.total_tf IS 'How often it occurs in the texts of all chunks.';
COMMENT ON COLUMN vocabulary.total_heading_tf IS 'How often it occurs in the heading paths of all chunks.';
COMMENT ON COLUMN vocabulary.is_stopword IS 'Whether one of its words is left out of questions that have others.';

COMMENT ON VIEW headings IS 'The outline of each document in reading order: every title with the chunks below it. Equal titles below the same title count as one.';
COMMENT ON COLUMN headings.doc_id IS 'Document that contains the title.';
COMMENT ON COLUMN headings.heading_path IS 'Titles above it, outermost first, and the title itself.';
COMMENT ON COLUMN headings.level IS 'Its depth in the outline, counted from 1.';
COMMENT ON COLUMN headings.heading IS 'The title.';
COMMENT ON COLUMN headings.first_chunk IS 'Key of the first chunk below it.';
COMMENT ON COLUMN headings.chunk_index IS 'Position of that chunk in the document, counted from 0.';
COMMENT ON COLUMN headings.chunks IS 'Number of chunks below it, those of its subtitles included.';
COMMENT ON COLUMN headings.characters IS 'Length of these chunks in characters.';

COMMENT ON VIEW near_duplicates IS 'Pairs of chunks of one text, or with a cosine of 0.95 or more, the most similar first. A copy of a text is paired with the first of its chunks only. Found by bands of the sign codes, which miss about one pair in a thousand.';
COMMENT ON COLUMN near_duplicates.node_id IS 'The chunk that comes first in the order of documents and chunks.';
COMMENT ON COLUMN near_duplicates.other_node_id IS 'The other chunk.';
COMMENT ON COLUMN near_duplicates.doc_id IS 'Document of the first.';
COMMENT ON COLUMN near_duplicates.other_doc_id IS 'Document of the other.';
COMMENT ON COLUMN near_duplicates.cosine IS 'Cosine of their vectors.';
COMMENT ON COLUMN near_duplicates.same_text IS 'Whether their texts are the same word for word. Their headings may differ, and so their vectors.';

COMMENT ON VIEW links IS 'The links of the Markdown documents in the order of the text; images, HTML and code are left out.';
COMMENT ON COLUMN links.source IS 'Document that contains the link.';
COMMENT ON COLUMN links.target IS 'The doc_id that it points to. NULL where it points out of the collection.';
COMMENT ON COLUMN links.label IS 'Text of the link without markup.';
COMMENT ON COLUMN links.url IS 'Destination as it is written.';
COMMENT ON COLUMN links.fragment IS 'What follows # in the destination. NULL where there is none.';
COMMENT ON COLUMN links.external IS 'Whether it points out of the collection, by a scheme such as https or by a host.';
COMMENT ON COLUMN links.broken IS 'Whether it points to a path for which this file has no document; there may be a file that was not read.';
COMMENT ON COLUMN links.link_index IS 'Position of the link in its document, counted from 0.';
COMMENT ON COLUMN links.i_start IS 'Characters of the source text before the link.';
COMMENT ON COLUMN links.i_end IS 'Characters of the source text up to the end of the link.';

COMMENT ON VIEW link_degrees IS 'How each document is linked with the others, the one that most link to first.';
COMMENT ON COLUMN link_degrees.doc_id IS 'Key of the document.';
COMMENT ON COLUMN link_degrees.outdegree IS 'Number of other documents that it links to.';
COMMENT ON COLUMN link_degrees.indegree IS 'Number of other documents that link to it.';
COMMENT ON COLUMN link_degrees.links IS 'Number of its links of every kind.';
COMMENT ON COLUMN link_degrees.external IS 'How many of them point out of the collection.';
COMMENT ON COLUMN link_degrees.broken IS 'How many of them point to a path for which this file has no document.';

COMMENT ON VIEW ragmd_documents IS 'The documents as an export to .ragmd has them, one row each; their chunks are in ragmd_chunks.';
COMMENT ON COLUMN ragmd_documents.id IS 'Key of the document.';
COMMENT ON COLUMN ragmd_documents.source IS 'Path of the file when it was read.';
COMMENT ON COLUMN ragmd_documents.chunks IS 'Number of its chunks.';
COMMENT ON COLUMN ragmd_documents.metadata IS 'Metadata of the document, a JSON object; an object content in it is written as the content of the document.';
COMMENT ON COLUMN ragmd_documents.full_text IS 'Text of the whole document.';
COMMENT ON COLUMN ragmd_documents.collection IS 'Collection that the document is in.';
COMMENT ON COLUMN ragmd_documents.tags IS 'Tags of the document.';
COMMENT ON COLUMN ragmd_documents.mime IS 'Media type of the file.';
COMMENT ON COLUMN ragmd_documents.checksum IS 'SHA-256 of the bytes of the file, in hex.';

COMMENT ON VIEW ragmd_chunks IS 'The chunks as an export to .ragmd has them, one row each, in the order of their vectors.';
COMMENT ON COLUMN ragmd_chunks.faiss_id IS 'Position of the vector in the index, counted from 0.';
COMMENT ON COLUMN ragmd_chunks.document_id IS 'Key of the document.';
COMMENT ON COLUMN ragmd_chunks.chunk_key IS 'Key of the chunk in its document: chunk- and its number, or what another program called it.';
COMMENT ON COLUMN ragmd_chunks.i_start IS 'Characters of the full text before the chunk. NULL where its position is not known.';
COMMENT ON COLUMN ragmd_chunks.i_end IS 'Characters of the full text up to the end of the chunk. NULL where its position is not known.';
COMMENT ON COLUMN ragmd_chunks.page IS 'Page on which the chunk begins, counted from 1. NULL where the format has no pages.';
COMMENT ON COLUMN ragmd_chunks.heading_path IS 'Titles above the chunk, outermost first.';
COMMENT ON COLUMN ragmd_chunks.tags IS 'Tags of the chunk.';
COMMENT ON COLUMN ragmd_chunks.text IS 'The chunk.';

COMMENT ON VIEW index_status IS 'Whether the lexical and the vector index contain every chunk: one row each.';
COMMENT ON COLUMN index_status.index_name IS 'lexical or vector.';
COMMENT ON COLUMN index_status.chunks IS 'Number of chunks in the file.';
COMMENT ON COLUMN index_status.indexed IS 'Number of chunks in the index.';
COMMENT ON COLUMN index_status.entries IS 'Number of rows in the index: postings or vectors.';
COMMENT ON COLUMN index_status.in_step IS 'Whether the index contains every chunk and no other.';

COMMENT ON MACRO TABLE hybrid_query IS 'The k best chunks by meaning and by words: FROM hybrid_query(question, vector). fusion is adaptive, rrf, weighted or convex.';
COMMENT ON MACRO TABLE lexical_query IS 'The k best chunks by BM25 for a question in words: FROM lexical_query(question, k := 5).';
COMMENT ON MACRO TABLE lexical_search IS 'The k best chunks by BM25 for terms, given as a list of termid and a list of their document frequencies.';
COMMENT ON MACRO TABLE vector_query IS 'The k chunks nearest to a vector by cosine: the pool best by their signs first, then by their exact cosines.';
COMMENT ON MACRO TABLE vector_search IS 'The same as vector_query, with the signs of the vector and the two bits of each dimension''s weight given as words of 128 bits.';
COMMENT ON MACRO condition_holds IS 'Whether a JSON value meets one condition of a metadata filter, such as $gte 2020.';
COMMENT ON MACRO conditions_of IS 'The conditions of a metadata filter: a list of alternatives, each a list of conditions.';
COMMENT ON MACRO visible IS 'The text of a chunk as a reader of the page sees it, given the columns text and shown of documents.';
COMMENT ON MACRO json_value_key IS 'A JSON value as text that is the same for equal values.';
COMMENT ON MACRO passes IS 'Whether a chunk meets the filters collection, tags_any, tags_all and has a 1 among the bits of passing; NULL leaves one out.';
COMMENT ON MACRO passing_chunks IS 'A bit for each rid: 1 where the metadata of the chunk meet a filter; NULL for no filter.';
COMMENT ON MACRO vector_length IS 'The length of a vector, summed in DOUBLE.';
COMMENT ON MACRO given_vector IS 'The vector of a query, or an error where it is NULL.';
COMMENT ON MACRO pack_words IS 'A list of truth values as words of 128 bits, the first value in the highest bit.';
COMMENT ON MACRO fts_main_documents.composed IS 'A text with its accents composed (NFC), ligatures spelled out and without soft hyphens and the like.';
COMMENT ON MACRO fts_main_documents.run_characters IS 'The single characters of runs in scripts without blanks, and pairs where run_pairs gives threes, a list.';
COMMENT ON MACRO sign_words IS 'The signs of a vector, a list of words of 128 bits.';
COMMENT ON MACRO TABLE exact_vector_query IS 'The k chunks nearest to a vector by cosine, from a scan of every vector.';
COMMENT ON MACRO TABLE exact_vector_search IS 'exact_vector_query with the metadata filter as bits, see passing_chunks.';
COMMENT ON MACRO TABLE more_like IS 'The k chunks nearest to a chunk, itself left out: FROM more_like(node_id).';
COMMENT ON MACRO TABLE source_documents_of IS 'The whole documents that a list of chunks comes from, each once.';
COMMENT ON MACRO TABLE bm25_scores IS 'BM25 of every chunk that holds one of the terms (a list of termid, a list of df), and how many of them it holds.';
COMMENT ON MACRO TABLE bm25_contributions IS 'What each term adds to the BM25 score of each chunk that holds it, in billionths.';
COMMENT ON MACRO TABLE score_floor IS 'The score that k chunks reach by some of the terms alone, and the number of chunks.';
COMMENT ON MACRO TABLE pruned_search IS 'The same as lexical_search, with the most common terms looked up only for chunks that may still come among the best k.';
COMMENT ON MACRO TABLE clause_search IS 'The k best chunks by BM25 that hold required words and phrases; see the Python function lexical_query.';
COMMENT ON MACRO holds_phrases IS 'Whether a text or its heading path holds each of the phrases, words with one blank around and between them.';
COMMENT ON MACRO TABLE pair_scores IS 'Exact cosine and BM25 of the chunks in a list of rid.';
COMMENT ON MACRO TABLE query_words IS 'The words of a question, each once; stop words only where there is nothing else.';
COMMENT ON MACRO TABLE query_terms IS 'The terms that a question looks for, the stems of its words, and how many chunks hold each.';
COMMENT ON MACRO metadata_matches IS 'Whether a JSON object meets a metadata filter: fields that equal, or operators such as $gte; numbers by value, null also where missing.';
COMMENT ON MACRO passes_filters IS 'Whether a chunk meets the filters collection, tags_any, tags_all and metadata; NULL leaves one out.';
COMMENT ON MACRO public_metadata IS 'The metadata of a chunk without the fields that are there for llama-index.';
COMMENT ON MACRO fts_main_documents.match_bm25 IS 'BM25 of a chunk, NULL where it holds none of the words; called as in the fts extension of DuckDB.';
COMMENT ON MACRO fts_main_documents.tokenize IS 'Every word that a text is found by, a list: its plain words and the parts of compound names.';
COMMENT ON MACRO fts_main_documents.heading_text IS 'What counts as the headings of a chunk: its heading path, and for the first one of a document also title, description, keywords, author, aliases and tags.';
COMMENT ON MACRO fts_main_documents.plain_words IS 'The plain words of a text, a list. Their number is the length of a chunk.';
COMMENT ON MACRO fts_main_documents.fold IS 'A word in lower case, without accents in Latin and Greek.';
COMMENT ON MACRO fts_main_documents.compound_parts IS 'The parts of snake_case, CamelCase and .NET names in a text, a list.';
COMMENT ON MACRO fts_main_documents.run_pairs IS 'Pairs of neighbouring characters in scripts without blanks between words, or threes (Thai, Lao, Burmese, Khmer), a list.';
COMMENT ON MACRO fts_main_documents.porter_stem IS 'The stem of a word in lower case by the rules of Porter.';
COMMENT ON MACRO fts_main_documents.russian_stem IS 'The stem of a Russian word in lower case by the rules of Snowball.';
COMMENT ON MACRO fts_main_documents.arabic_stem IS 'The stem of a word in Arabic letters by the rules of light10.';
COMMENT ON MACRO fts_main_documents.hindi_stem IS 'The stem of a word in Devanagari by the rules of Snowball.';
COMMENT ON MACRO fts_main_documents.greek_stem IS 'The stem of a Greek word in lower case without accents: without its ending.';
COMMENT ON MACRO fts_main_documents.script_stem IS 'The stem of a word by the stemmer of its script; NULL where the stemmer of the file decides.';
COMMENT ON MACRO fts_main_documents.term_of IS 'The term that a word counts as, with the stemmer of the file.';
COMMENT ON MACRO fts_main_documents.own_terms IS 'The words that are terms of their own whatever their stem, a list: the stop words of a new store and a few others.';
COMMENT ON MACRO fts_main_documents.fields_of IS 'The names in a list of fields such as text,heading_path; an unknown one is an error.';
