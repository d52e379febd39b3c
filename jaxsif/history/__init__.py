"""What is kept of runs: a small private folder for each."""
