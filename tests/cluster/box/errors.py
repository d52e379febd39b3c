"""The one error that a person sees."""


class BoxError(Exception):
    """What went wrong and, after a newline, what to do; printed once by `cli.main`."""
