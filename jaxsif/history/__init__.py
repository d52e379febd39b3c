"""The history of runs: a small private folder for each run."""
