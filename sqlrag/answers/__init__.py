"""From ranked chunks to an answer with sources that a reader can check."""
