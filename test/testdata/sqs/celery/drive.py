"""Sends tasks to Celery workers and waits for what came of them."""

import os
import time

from jobs import add, fail, flaky, late, slow

sent = time.time()
results = [add.delay(i, i) for i in range(20)]
retried = flaky.delay(7)
failed = fail.delay()
late.apply_async((1,), countdown=8)
assert [r.get(timeout=60) for r in results] == [2 * i for i in range(20)]
assert retried.get(timeout=60) == 7
try:
    failed.get(timeout=60)
except ValueError:
    pass
else:
    raise AssertionError("the task did not fail")

# What is acknowledged late is run again when its worker is killed, which the test does from here on.
for n in range(int(os.environ["SLOW"])):
    slow.delay(n)


def runs():
    with open(os.environ["RUNS"]) as f:
        return f.read().split("\n")


deadline = time.time() + 120
while True:
    lines = runs()
    ended = {line for line in lines if line.startswith("slow ")}
    waited = [float(line.split()[2]) for line in lines if line.startswith("late ")]
    if len(ended) == int(os.environ["SLOW"]) and waited:
        break
    assert time.time() < deadline, f"{len(ended)} of {os.environ['SLOW']} slow tasks have run"
    time.sleep(0.2)
assert waited[0] >= sent + 7.9, (sent, waited)
assert sum(line.startswith("flaky 7") for line in lines) == 3
