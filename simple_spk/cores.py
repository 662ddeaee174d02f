"""How much this machine can do at once."""

import os


def usable_cores() -> int:
    """How many CPU cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
