"""A few hundred words for whoever reads in tokens: what to know first, and which command says the rest."""
