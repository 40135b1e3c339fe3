"""Spark ends a planner process with SIGTERM and tells it nothing else: the last chance to leave a group."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def before_termination(farewell: Callable[[], None], within_s: float) -> Callable[[], None]:
    """Call `farewell` at SIGTERM, then do what would have been done without it. Returns what takes that back.

    It runs in a thread of its own: the main thread may have been interrupted while it held a lock that the farewell
    needs. Then the time runs out, and the group learns of the end by the session timeout.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # Python allows handlers in the main thread only; Spark's planner calls come from there
    before = signal.getsignal(signal.SIGTERM)
    begun = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal begun
        if begun:
            return  # Spark sends the signal twice
        begun = True
        thread = threading.Thread(target=farewell, name="sluice-group-farewell", daemon=True)
        thread.start()
        thread.join(within_s)
        signal.signal(number, signal.SIG_DFL if before is None else before)
        if callable(before):
            before(number, frame)
        elif before is not signal.SIG_IGN:
            os.kill(os.getpid(), number)

    def undo() -> None:
        here = threading.current_thread() is threading.main_thread()
        if here and not begun and signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    signal.signal(signal.SIGTERM, handle)
    return undo
