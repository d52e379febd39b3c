"""The first cause of a failure, from the reports of tasks and the messages of srun; pure."""
