"""The engine over time: runs are judged while they grow, and each finding is announced once."""
