"""Files that other programs can read: `.ragmd`, RAGFile, FAISS + JSON and Parquet, export and import."""
