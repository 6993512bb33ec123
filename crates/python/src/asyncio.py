"""An asyncio event loop that is driven from outside, and what else is easier said in Python."""

import asyncio
import heapq
import inspect
import select
import selectors
import sys
import threading
import traceback
from asyncio import base_events, events


class _Selector(selectors.EpollSelector):
    """On an epoll instance that somebody else has made, and watches."""

    def __init__(self, fd):
        super().__init__()
        self._selector.close()
        self._selector = select.epoll.fromfd(fd)


class Loop(asyncio.SelectorEventLoop):
    """The loop of the standard library, without a `run_forever` of its own while a reactor drives it.

    A reactor calls `look` when a file descriptor is ready, and `turn` when there may be something
    to run; `wake`, given at the start, tells it so. Until `adopt`, and after `release`, the loop runs as
    any other.
    """

    def __init__(self, wake, fd):
        super().__init__(_Selector(fd))
        self._wake = wake
        self._is_adopted = False
        self._main = None

    def adopt(self):
        """Makes this the running loop of the calling thread."""
        self._is_adopted = True
        self._thread_id = threading.get_ident()
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
        )
        events._set_running_loop(self)
        # Libraries that keep something as long as the program runs look for the task of
        # `run_until_complete`, by this callback.
        self._main = self.create_task(self._wait(), name="sandtide")
        self._main.add_done_callback(base_events._run_until_complete_cb)

    async def _wait(self):
        await self.create_future()

    def release(self):
        """Makes it a loop as any other again."""
        self._is_adopted = False
        self._thread_id = None
        self._stopping = False
        events._set_running_loop(None)
        sys.set_asyncgen_hooks(*self._hooks)

    def finish(self):
        """Ends what still runs, and closes the loop."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks, timeout=5))
        self.run_until_complete(self.shutdown_asyncgens())
        self.run_until_complete(self.shutdown_default_executor())
        self.close()

    def look(self):
        """Queues the callbacks of the descriptors that are ready; whether there were any."""
        ready = self._selector.select(0)
        self._process_events(ready)
        return bool(ready)

    def turn(self):
        """Runs what is ready. Seconds until something else is; negative if nothing is known of."""
        ready = self._ready
        scheduled = self._scheduled
        end = self.time() + self._clock_resolution
        while scheduled:
            timer = scheduled[0]
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            elif timer._when >= end:
                break
            heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        if ready:
            return 0.0
        return max(scheduled[0]._when - self.time(), 0.0) if scheduled else -1.0

    def _call_soon(self, callback, args, context):
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._wake()
        return handle

    def call_at(self, when, callback, *args, context=None):
        timer = super().call_at(when, callback, *args, context=context)
        if self._scheduled[0] is timer:
            self._wake()
        return timer

    def _write_to_self(self):
        if self._is_adopted:
            self._wake()
        else:
            super()._write_to_self()


class LifespanFailed(Exception):
    """The application has said that it cannot start up, or shut down."""


class Lifespan:
    """The lifespan protocol: one task for as long as the server runs."""

    def __init__(self, app, state, mode):
        self._app = app
        self._state = state
        self._mode = mode
        self._inbox = asyncio.Queue()
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._failure = None
        self._raised = None
        self._task = None

    async def startup(self):
        self._task = asyncio.create_task(self._run(), name="lifespan")
        self._inbox.put_nowait({"type": "lifespan.startup"})
        await self._started.wait()
        if self._failure is not None:
            raise LifespanFailed(self._failure)
        if self._raised is not None and self._mode == "on":
            raise self._raised

    async def shutdown(self):
        if self._task.done():
            return
        self._inbox.put_nowait({"type": "lifespan.shutdown"})
        await self._stopped.wait()
        if self._failure is not None:
            raise LifespanFailed(self._failure)

    async def _run(self):
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self._state,
        }
        try:
            await self._app(scope, self._inbox.get, self._send)
        except Exception as error:
            if self._started.is_set() and self._failure is None:
                traceback.print_exc()
            self._raised = error
        finally:
            self._started.set()
            self._stopped.set()

    async def _send(self, event):
        match event["type"]:
            case "lifespan.startup.complete":
                self._started.set()
            case "lifespan.startup.failed":
                self._failure = event.get("message", "") or "the application did not say why"
                self._started.set()
            case "lifespan.shutdown.complete":
                self._stopped.set()
            case "lifespan.shutdown.failed":
                self._failure = event.get("message", "") or "the application did not say why"
                self._stopped.set()
            case other:
                raise RuntimeError(f"unexpected lifespan event {other!r}")


def interface(app):
    """How an object is called: `asgi3`, `asgi2` or `wsgi`; None if it does not look like any."""
    while hasattr(app, "func") and hasattr(app, "keywords"):  # functools.partial
        app = app.func
    plain = inspect.isroutine(app) or inspect.isclass(app)
    call = app if plain else getattr(app, "__call__", None)
    if call is None:
        return None
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(app):
        return "asgi3"
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return {1: "asgi2", 2: "wsgi", 3: "asgi3"}.get(len(required))


def asgi2(app):
    """An application of ASGI 2 as one of ASGI 3."""

    async def call(scope, receive, send):
        await app(scope)(receive, send)

    return call


def shown(error):
    """An exception as the interpreter shows it."""
    return "".join(traceback.format_exception(error)).rstrip()
