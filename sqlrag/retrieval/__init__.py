"""Questions to ranked chunks."""
