"""The results of calls. All of them are read-only."""

from __future__ import annotations

from typing import Any

from pawl import errors
from pawl._data import ENDED as ENDED
from pawl._data import PRIORITY_WORDS, STATE_WORDS
from pawl._data import Attempt as Attempt
from pawl._data import Failure as Failure
from pawl._data import Follower as Follower
from pawl._data import Parent as Parent
from pawl._data import Progress as Progress
from pawl._data import TaskInfo as TaskInfo
from pawl._data import parent as parent
from pawl._data import task_info as task_info


class TaskEndedError(errors.PawlError):
    """The task ended without success: it is dead, poisoned, discarded or cancelled. task has the details."""

    code = "task_ended"

    def __init__(self, task: TaskInfo) -> None:
        failure = task.last_failure
        reason = f" ({task.reason})" if task.reason else ""
        why = f": {failure.message}" if failure and failure.message else ""
        super().__init__(f"task {task.id} is {task.state}{reason}{why}", state=task.state)
        self.task = task

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.task,)


def state_word(state: int) -> str:
    """Returns the word of a state."""
    return STATE_WORDS.word(state)


def priority_word(priority: int) -> str:
    """Returns the word of a priority."""
    return PRIORITY_WORDS.word(priority)
