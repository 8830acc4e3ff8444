"""When an answer is late: the more so the less of the machine it gets."""

import os
import time

MOST_CROWDED = 4.0
"""How many times its length a deadline may take where the machine has other work."""


class Deadline:
    """So many seconds from now on a machine that has nothing else to do; longer on a crowded one.

    How crowded it is, is looked at whenever the time is up, for others may come in between.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started = time.monotonic()
        self.crowded = 1.0

    def left(self) -> float:
        """Seconds until it passes, 0 where it has."""
        passed = time.monotonic() - self.started
        if passed >= self.seconds * self.crowded:
            self.crowded = max(self.crowded, crowding())
        return max(self.seconds * self.crowded - passed, 0.0)


def crowding() -> float:
    """How much longer than alone a program takes on this machine now, between 1 and MOST_CROWDED.

    The processes that run or wait to (the load of the last minute) for each processor.
    """
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(load, 1.0), MOST_CROWDED)
