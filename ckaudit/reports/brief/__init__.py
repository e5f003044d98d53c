"""A few hundred words for readers that pay by the token: what to know first, and which command prints the rest."""
