"""Rules on number formats: overflow, skipped updates, NaN and infinity."""
