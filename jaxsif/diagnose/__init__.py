"""What went wrong, by what the tasks and srun say; pure."""
