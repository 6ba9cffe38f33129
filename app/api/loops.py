"""Running coroutines from synchronous code, also where an event loop runs already, as in a notebook."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and return its result."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:  # a loop cannot run inside another one of the same thread
        return pool.submit(asyncio.run, coroutine).result()


class LoopThread:
    """An event loop in a thread of its own, for a synchronous object that lives longer than one call."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="flyball", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run a coroutine in the loop and return its result. Raises ``TimeoutError`` after ``seconds``."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, seconds), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # for instance after Ctrl-C
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
