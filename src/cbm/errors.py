"""The one exception that means "your input is wrong", as opposed to "we are"."""


class DataError(ValueError):
    """Input that cannot be used; the message names the array, the variable and the row where it can."""
