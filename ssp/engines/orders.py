"""A thread that alone touches something: it works in rounds, and between two rounds it does what
others order.

Promises that whoever waits for an answer gets one: the result, the error, or the Fault that ended
the thread. An ended thread does nothing more."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ssp.base.errors import Fault, SspError

T = TypeVar("T")
Order = Callable[[Fault | None], None]
"""Called once: on the thread with None, or with the Fault that ended the thread before."""

on_error: Callable[[BaseException], None] = lambda error: None  # noqa: E731
"""Called first of all when an error ends a thread. An engine's own process sets it, to end with
it."""


class OrderThread:
    """Calls `round()` while `busy()`, and `end(fault)` last of all. An error of a round, or one of
    an order that is no SspError, ends the thread with Fault `engine_down`."""

    def __init__(
        self,
        name: str,
        busy: Callable[[], bool],
        round: Callable[[], None],
        end: Callable[[Fault], None],
    ) -> None:
        self._busy = busy
        self._round = round
        self._end = end
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._over: Fault | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def order(self, order: Order) -> None:
        """Have `order` called on the thread between two rounds. When the thread has ended, call it
        here and now."""
        with self._gate:
            if self._over is None:
                self._orders.put(order)
                return
        order(self._over)

    def ask(self, work: Callable[[], T]) -> T:
        """The result of `work`, done on the thread between two rounds. Raises its error, or the
        Fault that ended the thread."""
        answer: Future[T] = Future()

        def answered(over: Fault | None) -> None:
            if over is not None:
                answer.set_exception(over)
                return
            try:
                answer.set_result(work())
            except SspError as error:
                answer.set_exception(error)
            except BaseException as error:
                answer.set_exception(_down(error))
                raise

        self.order(answered)
        return answer.result()

    def stop(self) -> None:
        """End the thread and wait for it. Orders that are not done yet hear of Fault `aborted`."""
        self._stopping = True
        self.order(lambda over: None)
        self._thread.join()

    def _run(self) -> None:
        over = Fault("aborted", "the engine was stopped")
        try:
            while not self._stopping:
                if self._busy():
                    self._round()
                else:
                    self._orders.get()(None)
                while not self._orders.empty() and not self._stopping:
                    self._orders.get()(None)
        except BaseException as error:
            on_error(error)
            over = _down(error)
        with self._gate:
            self._over = over
        try:
            self._end(over)
        finally:
            while not self._orders.empty():
                self._orders.get()(over)


def _down(error: BaseException) -> Fault:
    fault = Fault("engine_down", f"{type(error).__name__}: {error}"[:500])
    fault.__cause__ = error
    return fault
