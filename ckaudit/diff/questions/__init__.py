"""The questions put to two runs, one in each file."""

from ckaudit.diff.questions.question import Question, Said, question, questions

__all__ = ["Question", "Said", "question", "questions"]
