"""The kinds of faults in a resume checkpoint: each has a code, a severity and a remedy."""

from ckaudit.contract.schema.report import Severity
from ckaudit.contract.violations import ViolationKind, kind

COMMAND = "resume-check"


def _kind(code: str, name: str, severity: Severity, title: str, what_to_do: str) -> ViolationKind:
    return kind(code, name, severity, title, what_to_do, found_by=(COMMAND,))


UNREADABLE = _kind(
    "RSM001",
    "resume_file_unreadable",
    "sev1",
    "A file of a resume checkpoint cannot be opened.",
    "Check that it is a regular file inside the folder that may be read; copy what links lead to.",
)
EMPTY = _kind(
    "RSM002",
    "resume_file_empty",
    "sev0",
    "A file of a resume checkpoint holds nothing.",
    "Keep the checkpoint before it; write to a temporary name and rename when whole.",
)
CUT_OFF = _kind(
    "RSM003",
    "resume_file_cut_off",
    "sev0",
    "A file of a resume checkpoint ends before its tensors do.",
    "Keep the checkpoint before it; look for a full disk or a job killed while it saved; write to a temporary name and rename.",
)
DAMAGED = _kind(
    "RSM004",
    "resume_file_damaged",
    "sev0",
    "A file of a resume checkpoint contradicts itself.",
    "Keep the checkpoint before it; compare with another copy, and check the disk.",
)
SHARD_MISSING = _kind(
    "RSM005",
    "resume_shard_missing",
    "sev0",
    "A file that a resume checkpoint needs is not there.",
    "Keep the checkpoint before it; find out which rank did not finish writing.",
)
INDEX = _kind(
    "RSM006",
    "resume_index_mismatch",
    "sev0",
    "The index of a resume checkpoint names tensors that its files do not hold.",
    "Look for files of two checkpoints in one folder; save it again.",
)
BAD_WEIGHTS = _kind(
    "RSM007",
    "resume_weights_nonfinite",
    "sev0",
    "Weights in a resume checkpoint are NaN or infinite.",
    "Go on from an older checkpoint; find the step where it began with ckaudit triage.",
)
BAD_OPTIMIZER = _kind(
    "RSM008",
    "resume_optimizer_nonfinite",
    "sev0",
    "The optimizer state in a resume checkpoint is NaN or infinite.",
    "Go on from an older checkpoint: the next update would make the weights NaN as well.",
)
RUNS_CODE = _kind(
    "RSM009",
    "resume_runs_code",
    "sev1",
    "Unpickling a file of a resume checkpoint would call what no checkpoint needs.",
    "Do not load it. If you know where it comes from, save its tensors alone; torch.load(weights_only=True) refuses it.",
)
FOREIGN_CLASS = _kind(
    "RSM010",
    "resume_foreign_class",
    "sev2",
    "A resume checkpoint needs classes of other programs to be loaded.",
    "Save plain numbers, lists and tensors: a resume after that program changed fails, and weights_only=True refuses it.",
)
NO_OPTIMIZER = _kind(
    "RSM011",
    "resume_without_optimizer",
    "sev2",
    "A resume checkpoint has no optimizer state.",
    "Save optimizer.state_dict() with the weights: moments that start at zero make the loss jump after a resume.",
)
PART_MISSING = _kind(
    "RSM012",
    "resume_part_missing",
    "note",
    "A resume checkpoint lacks something that an exact resume needs.",
    "Save the schedule, the step, the random state and the position in the data as well.",
)
LEFT_OVER = _kind(
    "RSM013",
    "resume_left_over",
    "sev2",
    "A temporary file or folder says that a save was interrupted.",
    "Remove it when no job is saving; look for the end of that job.",
)
SIZE_JUMP = _kind(
    "RSM014",
    "resume_size_jump",
    "sev2",
    "A resume checkpoint has another size than the others.",
    "Compare what is in it with its neighbour: something is missing, or saved that should not be.",
)
TIME_JUMP = _kind(
    "RSM015",
    "resume_time_jump",
    "sev2",
    "A resume checkpoint took much longer to write than the others.",
    "Look at the load of the file system at that time; the training waited for it.",
)
UNNEEDED = _kind(
    "RSM016",
    "resume_bytes_unneeded",
    "sev2",
    "A file of a resume checkpoint is much larger than its tensors.",
    "A view was saved with all of the memory behind it: save tensor.clone().",
)
STEP_MISMATCH = _kind(
    "RSM017",
    "resume_step_mismatch",
    "sev2",
    "The name of a resume checkpoint says another step than its content.",
    "Find out which is right before you resume: the schedule and the data go on from the one inside.",
)
CHECKSUM = _kind(
    "RSM018",
    "resume_checksum_mismatch",
    "sev0",
    "A file is not what its checksum says.",
    "Copy it again from where it was whole; keep the checkpoint before it.",
)
COMPRESSED = _kind(
    "RSM019",
    "resume_file_compressed",
    "sev1",
    "A torch file is compressed inside, which torch never does.",
    "Do not load it before you know who made it: it may unpack to any size.",
)
NO_WEIGHTS = _kind(
    "RSM020",
    "resume_without_weights",
    "sev1",
    "A resume checkpoint has no weights.",
    "Find out which rank or callback should have written them.",
)

# Kinds of faults that make a checkpoint unusable for a resume.
BREAKING = frozenset(kind.code for kind in (EMPTY, CUT_OFF, DAMAGED, SHARD_MISSING, INDEX, BAD_WEIGHTS, BAD_OPTIMIZER, CHECKSUM))
