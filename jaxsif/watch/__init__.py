"""What the tasks of a running step do, and what goes wrong before one of them ends; pure."""
