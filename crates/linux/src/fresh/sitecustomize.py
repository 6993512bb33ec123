"""Numbers that Python draws without asking the system are drawn anew in each request: loaded by
Sandtide before a program (`reseed = false` turns it off), which finds nothing of it afterwards but
a `random` that behaves as it does after a fork."""


def _install():
    import os
    import random
    import sys

    here = "/sandtide/python"
    # Our directory is on the path for the interpreter to find this file, and for nothing else.
    sys.path[:] = [entry for entry in sys.path if entry != here]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in paths if path != here]
    if paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        os.environ.pop("PYTHONPATH", None)

    # This memory holds other bytes, the first of them not zero, whenever a request begins.
    fresh = bytearray(64)
    source = open("/sandtide/fresh", "rb", buffering=0)
    source.readinto(fresh)

    base = random.Random

    class Random(base):
        """The generator behind the functions of `random`."""

        def random(self, _fresh=fresh, _random=base.random):
            if _fresh[0]:
                renew()
            return _random(self)

        def getrandbits(self, k, /, _fresh=fresh, _getrandbits=base.getrandbits):
            if _fresh[0]:
                renew()
            return _getrandbits(self, k)

        def seed(self, *args, **kwargs):
            if fresh[0]:
                renew()
            super().seed(*args, **kwargs)

        def getstate(self):
            if fresh[0]:
                renew()
            return super().getstate()

        def setstate(self, state):
            if fresh[0]:
                renew()
            super().setstate(state)

        # `gauss` draws two numbers at a time and keeps one here.
        @property
        def gauss_next(self):
            return None if fresh[0] else self._gauss_next

        @gauss_next.setter
        def gauss_next(self, value):
            self._gauss_next = value

    seed = base.seed

    def renew():
        words = bytes(fresh)
        fresh[0] = 0
        seed(generator, int.from_bytes(words, "little"))
        if mix is not None:
            mix(words, len(words) / 2)

    mix = None
    # It is seeded with its first use.
    first, fresh[0] = fresh[0], 0
    generator = Random()
    fresh[0] = first
    # Keeps the file open, which keeps the memory fresh.
    generator._source = source
    old = random._inst
    random._inst = generator
    for name, value in list(vars(random).items()):
        if getattr(value, "__self__", None) is old:
            setattr(random, name, getattr(generator, name))

    # OpenSSL's generator seeds itself anew in another process. Here it stays in one, as asyncio
    # before 3.12 takes another process for one without an event loop.
    if sys.version_info < (3, 12) and sys.implementation.name == "cpython":
        from functools import wraps
        from importlib.util import find_spec

        def seeded(function):
            @wraps(function)
            def call(*args, **kwargs):
                if fresh[0]:
                    renew()
                return function(*args, **kwargs)

            return call

        def patch(ssl):
            nonlocal mix
            mix = ssl.RAND_add
            for holder, names in (
                (ssl, ("RAND_bytes", "RAND_pseudo_bytes")),
                (ssl.SSLContext, ("wrap_socket", "wrap_bio")),
            ):
                for name in names:
                    if hasattr(holder, name):
                        setattr(holder, name, seeded(getattr(holder, name)))

        class Finder:
            """Finds `ssl` where it is, and patches it when it was loaded."""

            @staticmethod
            def find_spec(name, path=None, target=None):
                if name != "ssl":
                    return None
                sys.meta_path.remove(Finder)
                spec = find_spec(name)
                if spec is not None and spec.loader is not None:
                    load = spec.loader.exec_module

                    def exec_module(module):
                        load(module)
                        patch(module)

                    spec.loader.exec_module = exec_module
                return spec

        sys.meta_path.insert(0, Finder)


def _go_on():
    """Loads the `sitecustomize` that there would be without this one."""
    import sys

    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


try:
    _install()
except Exception as error:
    import sys

    print(f"sandtide: random numbers are not fresh by themselves: {error!r}", file=sys.stderr)
finally:
    _go_on()
