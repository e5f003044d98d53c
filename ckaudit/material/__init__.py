"""Raw material: files of texts, tokens, scores and generations by other people, read safely and one record at a time."""
