"""Rules on resumes: whether a training went on as it had stopped."""
