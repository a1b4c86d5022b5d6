"""The way of a file's chunks and vectors into other stores."""
