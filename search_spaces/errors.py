"""The two ways in which a command may refuse to work; everything else is a recorded result or a bug."""


class InputError(Exception):
    """The user's input is wrong. One line: the file, the key, the bad value and the legal ones. Exit code 2."""


class EnvironmentProblem(Exception):
    """Something outside the input is missing or unreachable (SGLang, a GPU, Ray, MLflow). Exit code 3."""
