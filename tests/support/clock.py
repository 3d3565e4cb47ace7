"""Time that costs nothing: a loop whose clock jumps to the next timer as soon as nothing else can happen.

Sockets on loopback still work, since whatever arrives within a few real milliseconds comes before the jump. So a test
of a client with a server in the same loop sees timeouts of minutes at once and in order, and never sleeps.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

PATIENCE = 0.002
"""Real seconds that bytes on loopback may take."""
DEADLOCK = 10.0
"""Real seconds after which a loop without timers will never wake."""
DAYS = 30 * 86400.0
"""Virtual seconds that no test means to live through."""

P = ParamSpec("P")
T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        ready = super().select(PATIENCE)
        if ready:
            return ready
        if timeout is None:
            ready = super().select(DEADLOCK)
            if not ready:
                raise RuntimeError("nothing will ever happen: every task waits and no timer is set")
            return ready
        self.jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 1,000 and moves only when everybody waits."""

    def __init__(self) -> None:
        selector = _Jumping()
        super().__init__(selector)
        self._now = 1000.0
        selector.jump = self._jump

    def time(self) -> float:
        return self._now

    def _jump(self, seconds: float) -> None:
        self._now += seconds + 1e-9
        if self._now > DAYS:
            raise RuntimeError("the test lives for ever")


def virtual(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Runs an async test on a `VirtualLoop`; whatever tasks it leaves are cancelled."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(test(*args, **kwargs))

    return run


def loop_time() -> float:
    """The running loop's time: a clock for parts that take one."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns when `condition` holds. Fails after `seconds` of the loop's time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    step = 0.005
    while not condition():
        assert loop.time() < deadline, "it never came to that"
        await asyncio.sleep(step)
        # Every step costs real time: what is far away is looked for less often.
        step = min(step * 1.1, 1.0)


async def settled(seconds: float = 0.05) -> None:
    """Lets everything that can happen now happen."""
    await asyncio.sleep(seconds)


class Background:
    """Runs coroutines beside a test: `async with Background(a.run(), b.run())`. One that fails fails the test."""

    def __init__(self, *coroutines: Coroutine[Any, Any, Any]) -> None:
        self._coroutines = coroutines
        self.tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Background:
        self.tasks = [asyncio.create_task(coroutine) for coroutine in self._coroutines]
        return self

    async def __aexit__(self, *_: object) -> None:
        ended = [task for task in self.tasks if task.done()]
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for task in ended:
            if not task.cancelled():
                task.result()


class Inline(Executor):
    """Runs at once, in the thread that asks: for code that moves work off the loop."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Sleeps:
    """A `sleep` that remembers what it was asked for and still waits in the loop's time."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await asyncio.sleep(seconds)


Sleep = Callable[[float], Awaitable[None]]
