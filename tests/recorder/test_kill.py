import subprocess
import sys
from pathlib import Path


def test_twenty_killed_trainings_leave_whole_files():
    script = Path(__file__).with_name("kill_many.py")
    done = subprocess.run([sys.executable, script, "20"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("checkpoints") == 20
