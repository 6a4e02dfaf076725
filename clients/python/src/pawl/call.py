"""Call: a task that has not been enqueued yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pawl import _enqueue, _rpc, errors
from pawl._convert import Seconds
from pawl._limits import MAX_CHAIN_DEPTH
from pawl.options import Options, merge, spec
from pawl.ref import Ref
from pawl.v1 import task_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """A task that has not been enqueued yet."""

    caller: _rpc.Caller = field(repr=False)
    type: str
    payload: bytes
    content_type: str
    own_options: Options
    followers: tuple[Call[Any], ...] = ()
    depth: int = 0
    """The length of the longest chain of follow-up tasks after this one."""

    def options(self, **options: Unpack[Options]) -> Call[R_co]:
        """Returns the call with more options."""
        return replace(self, own_options=merge(self.own_options, options))

    def within(self, timeout: Seconds) -> Call[R_co]:
        """Returns the call with a limit for its enqueue, like App.within: welcome.call("a@example.com").within(2).enqueue()."""
        return replace(self, caller=self.caller.within(timeout))

    def then(self, *calls: Call[Any]) -> Call[R_co]:
        """Adds follow-up tasks, which are enqueued at the instant this one succeeds: fetch.call(url).then(resize.call(100).then(mail.call())).

        Their handlers read the result of this task with Claim.parent_result. If this task dies, they wait for a replay that succeeds;
        if it is cancelled or discarded, they are dropped. A task can have at most 8 direct follow-up tasks, and a chain at most 20.
        """
        depth = max((1 + call.depth for call in calls), default=0)
        if depth > MAX_CHAIN_DEPTH:
            raise errors.invalid("then", f"{depth} tasks in a chain, at most {MAX_CHAIN_DEPTH} are allowed")
        return replace(self, followers=(*self.followers, *calls), depth=max(self.depth, depth))

    def enqueue(self) -> Ref[R_co]:
        """Enqueues the task. When it returns, the task is on stable storage."""
        return self.caller.run(_enqueue.enqueue(self.caller, self._spec()))

    async def aenqueue(self) -> Ref[R_co]:
        """Async version of enqueue."""
        return await self.caller.arun(_enqueue.enqueue(self.caller, self._spec()))

    def _spec(self) -> task_pb2.TaskSpec:
        out = spec(self.type, self.payload, self.content_type, self.own_options)
        for at, call in enumerate(self.followers):
            with errors.inside(f"then[{at}]"):
                out.then.append(call._spec())
        return out
