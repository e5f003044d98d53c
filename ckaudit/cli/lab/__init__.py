"""`ckaudit lab`: trainings with known truth, and the score of our verdicts on them."""
