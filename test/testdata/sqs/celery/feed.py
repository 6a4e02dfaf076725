"""Sends numbered tasks, so many a second, until it is killed. It writes down each number whose task was taken, and repeats those that were not."""

import os
import sys
import time

from jobs import slow
from kombu.exceptions import OperationalError

n, pause = int(sys.argv[1]), 1 / float(os.environ["RATE"])
while True:
    try:
        slow.delay(n)
    except OperationalError:  # the server is down
        time.sleep(0.5)
        continue
    with open(os.environ["SENT"], "a") as f:
        f.write(f"slow {n}\n")
    n += 1
    time.sleep(pause)
