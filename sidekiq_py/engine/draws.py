"""
The random numbers of a worker's own decisions.

The generator of the module `random` belongs to the program. After a job that seeds it, as machine learning does, the
worker would draw the same numbers again: of two queues with weights, it would ask the same one first every time.
"""

import os
import random

_generator = random.Random()
# As the module does for its own generator: children must not draw the same numbers as each other.
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_generator.seed)

draw = _generator.random
"""Returns a random number from [0, 1)."""
bits = _generator.getrandbits
sample = _generator.sample
