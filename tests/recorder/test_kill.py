from tests.forked import training


def test_a_dozen_killed_trainings_leave_whole_files():
    done = training("tests.recorder.kill_many", 12)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("checkpoints") == 12
