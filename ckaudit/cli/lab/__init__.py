"""`ckaudit lab`: trainings of known truth, and the score of our verdicts on them."""
