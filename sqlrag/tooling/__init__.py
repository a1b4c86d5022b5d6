"""What tools for language models need beside the functions: descriptions, answers that fit a context, a key."""
