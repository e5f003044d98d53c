"""Real trainings with one known fault each, healthy ones that look ill, and the score of an auditor on both."""
