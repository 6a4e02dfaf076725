"""A Celery application that knows nothing of Pawl but its address."""

import os
import time

from celery import Celery

app = Celery("jobs", broker=os.environ["BROKER"], backend="file://" + os.environ["RESULTS"])
app.conf.update(
    broker_transport_options={"is_secure": False, "region": "us-east-1", "wait_time_seconds": 2, "visibility_timeout": 10, "polling_interval": 0.2},
    task_default_queue="celery",
    worker_enable_remote_control=False,
    broker_connection_retry=True,
)


def note(line):
    """One write of one line: what was run, even if the worker dies at once."""
    fd = os.open(os.environ["RUNS"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(fd, (line + "\n").encode())
    os.close(fd)


@app.task
def add(a, b):
    note(f"add {a} {b}")
    return a + b


@app.task(bind=True, max_retries=3, default_retry_delay=1)
def flaky(self, n):
    note(f"flaky {n} {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry()
    return n


@app.task
def fail():
    note("fail")
    raise ValueError("no")


@app.task(acks_late=True, reject_on_worker_lost=True)
def late(n):
    note(f"late {n} {time.time()}")


@app.task(acks_late=True, reject_on_worker_lost=True)
def slow(n):
    time.sleep(0.02)
    note(f"slow {n}")
