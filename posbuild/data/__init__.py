"""Text as bytes: corpora split by document, batches as a function of seed and step, count models to compare with."""
