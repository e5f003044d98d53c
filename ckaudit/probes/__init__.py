"""Measurements of a model's generations: toxicity (M49, M50) and memorized training data (M52)."""
