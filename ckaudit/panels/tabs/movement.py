"""The tab on movement: which weights changed, and by how much."""

from ckaudit.panels.annotations import threshold
from ckaudit.panels.tab import Board, tab

READS = ("relative_movement", "update_to_weight", "update_to_weight_global", "update_norm", "moving_share", "weight_std")


@tab(50, asks=("D1.5", "D2.6", "D3.4", "D3.6"), rules=("update_size_changed", "weights_not_as_saved"), reads=READS)
def movement(board: Board) -> None:
    """What moved?"""
    board.bars("movement_ranking", "Which weights moved most since the start?", "relative_movement", ranked=True)
    board.heat("movement", "When did each tensor move?", "relative_movement")
    board.heat("update_ratio", "How large is an update beside its weight?", "update_to_weight", log=True)
    board.curves(
        "update_ratio_global",
        "Is the step of the whole model in its band?",
        "update_to_weight_global",
        log=True,
        lines=threshold("MOVE002", "min_ratio", "max_ratio"),
    )
    board.curves("moving_share", "How many tensors take part?", "moving_share")
    board.ridges("weight_ridges", "How are the weights of a tensor spread, over time?", "weights")
    board.grids("weight_grids", "How does a matrix look, over time?", "weights")
