"""The steps of a search for programs that compose their own: retrieve, fuse, rerank, compress."""
