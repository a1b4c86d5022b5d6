"""Files that other programs can read: `.ragmd`, RAGFile, FAISS + JSON and Parquet, out of a store and back."""
