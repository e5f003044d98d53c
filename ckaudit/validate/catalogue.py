"""The kinds of violation that only a whole run shows: its files contradict each other, or some are missing."""

from ckaudit.contract.violations import kind

MIXED_VERSIONS = kind(
    "RUN001", "mixed_versions", "sev1", "The files of one run follow different versions.", "Convert the run to one version."
)
DUPLICATE_STEP = kind(
    "RUN002", "duplicate_step", "sev1", "Two files hold one step.", "Keep one; rename what a resume replaced to .sessionNNN.json."
)
CADENCE_GAP = kind(
    "RUN003",
    "cadence_gap",
    "sev2",
    "Checkpoints that the cadence asks for are missing.",
    "Find out why they were not written; declare another cadence in run.json if that is what was meant.",
)
TENSOR_SET = kind(
    "RUN004",
    "tensor_set_changed",
    "sev2",
    "Weight tensors appear or vanish between checkpoints.",
    "Name every tensor in every checkpoint, always by the same name.",
)
TENSOR_SHAPE = kind(
    "RUN005",
    "tensor_shape_changed",
    "sev1",
    "A tensor changes its shape, or a layer its heads, between checkpoints.",
    "Look for two runs that write to one folder.",
)
TENSOR_DTYPE = kind(
    "RUN006",
    "tensor_dtype_changed",
    "sev2",
    "A weight tensor changes its element type between checkpoints.",
    "Check the precision settings of the sessions.",
)
STEPS_BACK = kind(
    "RUN007",
    "steps_go_back",
    "sev2",
    "Steps go back inside one session.",
    "Raise session by one at each resume, so that a reader knows which line counts.",
)
CLOCK_BACK = kind(
    "RUN008", "clock_goes_back", "sev2", "Time goes back inside one session.", "Check the clock; rates over time are wrong here."
)
SESSION_BACK = kind(
    "RUN009",
    "session_goes_back",
    "sev2",
    "A lower session follows a higher one.",
    "A resume replaces the older session from its first step on: rename its later files to .sessionNNN.json.",
)
CONFLICT = kind(
    "RUN010",
    "conflicting_values",
    "sev1",
    "One step of one session has two values of one name.",
    "Write each value once; raise session at each resume.",
)
BAD_CADENCE = kind(
    "RUN011",
    "bad_cadence",
    "sev2",
    "The cadence in run.json makes no sense.",
    "Stretches end at rising steps, only the last one is open, and every is at least 1.",
)
SESSION_ORDER = kind(
    "RUN012",
    "session_order",
    "sev2",
    "The sessions in run.json contradict each other.",
    "List sessions oldest first, with Unix times.",
)
UNLISTED_TENSOR = kind(
    "RUN013",
    "unlisted_tensor",
    "sev2",
    "A checkpoint holds a tensor that the tensor table does not list.",
    "List every parameter tensor in run.json.",
)
TABLE_SHAPE = kind(
    "RUN014",
    "table_contradicts_checkpoint",
    "sev1",
    "A tensor's shape differs between run.json and a checkpoint.",
    "Look for a run.json of another run.",
)
WRITE_ERRORS = kind(
    "RUN015",
    "write_errors",
    "sev2",
    "The recorder says that it could not write everything.",
    "Read what failed first; where the disk did, look for a full one or a lost mount in the log of the training job.",
)
NO_END = kind(
    "RUN016",
    "session_without_end",
    "note",
    "A session has no end: it was cut off, or it is still running.",
    "Nothing to do if the job is running.",
)
LONELY_RANK = kind(
    "RUN017",
    "rank_without_merged_file",
    "sev2",
    "A rank wrote facts for a step that has no merged checkpoint.",
    "Find out why the merged file of that step is missing.",
)
RANK_RANGE = kind(
    "RUN018", "rank_out_of_range", "sev1", "A rank is not below the world size.", "Look for files of another run in this folder."
)
LOSS_MISMATCH = kind(
    "RUN019",
    "loss_mismatch",
    "sev1",
    "A checkpoint's loss is not that of its line in the scalar log.",
    "Check that both write the loss of the same step, and the same mean.",
)
GRAD_NORM_MISMATCH = kind(
    "RUN020",
    "grad_norm_mismatch",
    "sev1",
    "A checkpoint's global gradient norm is not that of its line in the scalar log.",
    "Check that both are taken before clipping, and in the same step.",
)
UNLISTED_SESSION = kind(
    "RUN021",
    "unlisted_session",
    "sev2",
    "A session that wrote files is not in run.json.",
    "Add an entry to sessions at every start.",
)
BAD_TABLE = kind(
    "RUN022",
    "tensor_table_contradicts_itself",
    "sev1",
    "The tensor table of run.json contradicts itself or the parameter count.",
    "Count a shared tensor once; tie tensors only to names in the table.",
)
BAD_PLAN = kind(
    "RUN023",
    "plan_contradicts_itself",
    "sev2",
    "The plan in run.json contradicts itself.",
    "planned_learning_rate is a list of [step, value] with rising steps, and warm-up ends before the run does.",
)
CONTRADICTED_CLAIM = kind(
    "RUN024",
    "contradicted_claim",
    "sev2",
    "A logged number is not what the other numbers of the log give.",
    "Find out which of the two is wrong; check units, and whether it is of one device or of all.",
)
LOOK_ERRORS = kind(
    "RUN025",
    "look_errors",
    "note",
    "The recorder says that it could not look at a part of the training; what it wrote is whole.",
    "Nothing is wrong with the files; report what failed first, with the kind of model, as a fault of the recorder.",
)
WORD_FOR_NUMBER = kind(
    "RUN026",
    "word_for_number",
    "sev1",
    "A value that is a number by its name is a word, or true or false.",
    'Write a number, or "NaN", "Infinity" or "-Infinity" where it is not finite; leave it out where it was not measured.',
)
INCOMPLETE = kind(
    "MAN001",
    "incomplete_manifest",
    "note",
    "run.json does not say all that it takes to repeat the run.",
    "Give what is missing to the recorder at the next start, or add it to run.json.",
)
