"""Watch the tasks of a running step: their states, and problems before any of them ends; pure."""
