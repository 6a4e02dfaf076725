"""A broker scripted by a test, for behavior that the real one shows only in rare situations."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as Any_

from pawl.v1 import task_pb2, worker_pb2

_TIMEOUT = 120.0


class Stream:
    """The broker's end of a worker's stream."""

    def __init__(self) -> None:
        self._received: queue.SimpleQueue[worker_pb2.WorkRequest | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[worker_pb2.WorkResponse | None | grpc.StatusCode] = queue.SimpleQueue()

    def receive(self) -> worker_pb2.WorkRequest | None:
        """Returns the worker's next frame, or None if the worker has closed the stream."""
        return self._received.get(timeout=_TIMEOUT)

    def settles(self) -> worker_pb2.SettleRequest:
        """Returns the next frame that settles anything."""
        while True:
            frame = self.receive()
            assert frame is not None, "the worker has closed the stream"
            if frame.HasField("settle"):
                return frame.settle

    def push(self, *tokens: str, **fields: Any) -> None:
        """Pushes tasks."""
        tasks = [worker_pb2.ClaimedTask(task_id=id_of(token), claim_token=token, queue="q", type="t") for token in tokens]
        for task in tasks:
            task.lease.seconds = 30
            task.MergeFrom(worker_pb2.ClaimedTask(**fields))
        self.answers.put(worker_pb2.WorkResponse(tasks=tasks))

    def break_off(self) -> None:
        """Breaks the stream, like a lost connection."""
        self.answers.put(grpc.StatusCode.UNAVAILABLE)

    def serve(self, requests: Iterator[worker_pb2.WorkRequest], context: Any) -> Iterator[worker_pb2.WorkResponse]:
        """Runs the stream in the server's threads."""
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()
        while True:
            answer = self.answers.get()
            if answer is None:
                return
            if isinstance(answer, grpc.StatusCode):
                context.abort(answer, "as the test wants it")
            yield answer

    def _read(self, requests: Iterator[worker_pb2.WorkRequest]) -> None:
        try:
            for request in requests:
                self._received.put(request)
        except grpc.RpcError:
            return
        self._received.put(None)
        self.answers.put(None)


class ScriptedBroker:
    """Serves Work, Settle and Extend."""

    def __init__(self) -> None:
        self._streams: queue.SimpleQueue[Stream] = queue.SimpleQueue()
        self._opened: list[Stream] = []
        self.settled: queue.SimpleQueue[worker_pb2.SettleRequest] = queue.SimpleQueue()
        self.settle_refusals: list[str] = []  # codes for the next calls of Settle; then they succeed
        self.extended: queue.SimpleQueue[worker_pb2.ExtendRequest] = queue.SimpleQueue()
        self.extend_answers: queue.SimpleQueue[worker_pb2.ExtendResponse | task_pb2.Error | grpc.StatusCode] = queue.SimpleQueue()
        self._server = grpc.server(futures.ThreadPoolExecutor(20))
        work = grpc.stream_stream_rpc_method_handler(
            self._work, worker_pb2.WorkRequest.FromString, worker_pb2.WorkResponse.SerializeToString
        )
        settle = grpc.unary_unary_rpc_method_handler(
            self._settle, worker_pb2.SettleRequest.FromString, worker_pb2.SettleResponse.SerializeToString
        )
        extend = grpc.unary_unary_rpc_method_handler(
            self._extend, worker_pb2.ExtendRequest.FromString, worker_pb2.ExtendResponse.SerializeToString
        )
        handler = grpc.method_handlers_generic_handler("pawl.v1.WorkerService", {"Work": work, "Settle": settle, "Extend": extend})
        self._server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stream(self) -> Stream:
        """Waits for the next stream of a worker."""
        return self._streams.get(timeout=_TIMEOUT)

    def _work(self, requests: Iterator[worker_pb2.WorkRequest], context: Any) -> Iterator[worker_pb2.WorkResponse]:
        stream = Stream()
        self._opened.append(stream)
        self._streams.put(stream)
        return stream.serve(requests, context)

    def _settle(self, request: worker_pb2.SettleRequest, context: Any) -> worker_pb2.SettleResponse:
        self.settled.put(request)
        return answer_to(request, self.settle_refusals.pop(0) if self.settle_refusals else "")

    def _extend(self, request: worker_pb2.ExtendRequest, context: Any) -> worker_pb2.ExtendResponse:
        self.extended.put(request)
        answer = self.extend_answers.get(timeout=_TIMEOUT)
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "as the test wants it")
        if isinstance(answer, task_pb2.Error):
            refuse(context, answer)
        assert isinstance(answer, worker_pb2.ExtendResponse)
        return answer

    def close(self) -> None:
        """Ends all streams."""
        for stream in self._opened:
            stream.answers.put(None)  # its thread would wait forever
        self._server.stop(None)


def id_of(token: str) -> str:
    """Returns a task's id: for "a.1" one in shard 1."""
    name, _, shard = token.partition(".")
    return f"00000000-0000-7{int(shard):03x}-8000-0000000000{ord(name):02x}" if shard else f"id-{name}"


def refuse(context: Any, error: task_pb2.Error) -> None:
    """Refuses a call as the broker does, with a google.rpc.Status, whose third field is a list of details."""
    detail = Any_()
    detail.Pack(error)
    data = detail.SerializeToString()
    assert len(data) < 128
    context.set_trailing_metadata((("grpc-status-details-bin", bytes((3 << 3 | 2, len(data))) + data),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)


def answer_to(request: worker_pb2.SettleRequest, error: str = "") -> worker_pb2.SettleResponse:
    """Answers everything that a frame settles: done, or refused with a code."""
    out = worker_pb2.SettleResponse()
    for name in ("acks", "fails", "extends", "releases"):
        for each in getattr(request, name):
            answer = getattr(out, name).add(task_id=each.task_id, claim_token=each.claim_token)
            if error:
                answer.error.code = error
    return out
