"""`ckaudit probe`: what a model's generations give away, and passages reserved to ask it about."""
