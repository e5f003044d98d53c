"""Lines that hold a list of numbers under one name, rewritten as pairs of a numbered name and a number."""

import re

_LIST = re.compile(
    r"(?<![\w.])([A-Za-z]{1,12}): (-?\d{1,9}\.\d{1,20}(?:, -?\d{1,9}\.\d{1,20}){1,31}) \|"
)  # as ComboGAN writes it
_OF_CLASSES = re.compile(r"Pseudo dice \[([^\[\]]{1,2000})\]", re.IGNORECASE)  # as nnU-Net writes it, a number for each class
_NUMBER_OF_CLASS = re.compile(r"(?:np\.float(?:16|32|64)\()?(nan|\d{1,3}(?:\.\d{0,20})?(?:e-?\d{1,3})?)\)?(?=[,\s]|\Z)")


def with_pairs(line: str) -> str:
    """Return a line with a pair for each number of its lists.

    >>> with_pairs("D: 0.11, 0.10 | G: 0.14, 0.15 |")
    'D_1: 0.11 D_2: 0.10 G_1: 0.14 G_2: 0.15'
    >>> with_pairs("Pseudo dice [np.float32(0.81), nan]")
    'microbench_score/pseudo_dice_1: 0.81 microbench_score/pseudo_dice_2: nan'
    """
    if " | G: " in line:
        line = _LIST.sub(_numbered, line)
    return _OF_CLASSES.sub(_scores_of_classes, line) if "dice [" in line else line


def _numbered(losses: re.Match[str]) -> str:
    """Return a list of losses, one per network, as pairs."""
    return " ".join(f"{losses[1]}_{place}: {text}" for place, text in enumerate(losses[2].split(", "), 1))


def _scores_of_classes(scores: re.Match[str]) -> str:
    """Return a list of class scores as pairs."""
    numbers = _NUMBER_OF_CLASS.findall(scores[1])
    return " ".join(f"microbench_score/pseudo_dice_{place}: {text}" for place, text in enumerate(numbers, 1))
