"""The question and its answer, without input or output: options, filters, terms, fusion, results, explanation."""
