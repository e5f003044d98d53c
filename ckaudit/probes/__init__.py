"""What a model's generations give away: toxicity (M49, M50) and memorized training data (M52)."""
