"""The score of an auditor on trainings whose truth is known."""
