"""Raw material: files of texts, tokens, scores and generations that other people wrote, read safely and a record at a time."""
