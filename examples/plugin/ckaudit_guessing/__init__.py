"""Is a language model worse than guessing? A metric, a rule and a cause, as a plugin of ckaudit."""
