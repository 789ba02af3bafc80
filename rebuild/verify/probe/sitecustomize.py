"""Reports at a process's end whether its torch.distributed group is still open.

ncclfix puts this file first on PYTHONPATH. Each Python process then appends to
PID.jsonl, in the folder named by NCCLFIX_PROBE, one line when it starts and one
when it ends. A start without an end means os._exit, a signal or another program
in the same process: what was open then is unknown.

It prints nothing, changes no exit status, imports neither torch nor anything
else that Python has not loaded anyway, and gives way to the sitecustomize that
would have run without it. Processes started with -S, -I or -E do not see it.
"""

import atexit
import os
import stat
import sys

_FOLDER = os.environ.get("NCCLFIX_PROBE")

# What the process came with, and is therefore not its own to close.
_inherited = {"group": None, "files": frozenset()}


def _quote(s):
    out = ['"']
    for c in str(s):
        n = ord(c)
        if c in '"\\' or n < 0x20 or 0x7E < n <= 0xFFFF:
            out.append("\\u%04x" % n)
        elif n > 0xFFFF:
            n -= 0x10000
            out.append("\\u%04x\\u%04x" % (0xD800 + (n >> 10), 0xDC00 + (n & 0x3FF)))
        else:
            out.append(c)
    return "".join(out) + '"'


def _json(v):
    if v is None:
        return "null"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return "%d" % v
    if isinstance(v, dict):
        return "{%s}" % ",".join(_quote(k) + ":" + _json(x) for k, x in v.items())
    if isinstance(v, (list, tuple)):
        return "[%s]" % ",".join(_json(x) for x in v)
    return _quote(v)


def _write(record):
    line = (_json(record) + "\n").encode("ascii")
    path = os.path.join(_FOLDER, "%d.jsonl" % os.getpid())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def _group(dist):
    """Returns the default group's object: a child may have inherited it."""
    holder = getattr(dist, "GroupMember", None) or getattr(
        getattr(dist, "distributed_c10d", None), "GroupMember", None
    )
    return getattr(holder, "WORLD", None)


def _opened():
    """Returns torch.distributed if this process has opened its default group."""
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is None or not dist.is_initialized():
            return None
        inherited = _inherited["group"]
        return None if inherited is not None and _group(dist) is inherited else dist
    except Exception:
        return None


def _files():
    """Returns (descriptor, path) of the open files and folders.

    What the system keeps no name for, such as shared memory that is unlinked, is
    not among them, nor are devices, segments and the kernel's own files: drivers
    keep those open, and libuv, in PyTorch's store, a null device.
    """
    found = set()
    try:
        fds = [int(n) for n in os.listdir("/proc/self/fd")]
    except OSError:
        return found
    for fd in fds:
        try:
            mode = os.fstat(fd).st_mode
            path = os.readlink("/proc/self/fd/%d" % fd)
        except OSError:
            continue  # the listing's own descriptor
        if fd <= 2 or path.endswith(" (deleted)") or path.startswith(("/dev/", "/proc/", "/sys/")):
            continue
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            found.add((fd, path))
    return found


def _left_open():
    """Returns the paths of files the process has opened and that nothing closes."""
    left = _files() - _inherited["files"]
    if not left:
        return []
    # A file object that is still alive is in use, not lost.
    import gc
    import io

    owned = set()
    for o in gc.get_objects():
        if issubclass(type(o), io.FileIO) and not o.closed:
            owned.add(o.fileno())
    return sorted(path for fd, path in left if fd not in owned)


def _target():
    """Returns the function that multiprocessing runs here, as name, file and line."""
    process = sys.modules.get("multiprocessing.process")
    try:
        current = process.current_process()
        fn = current._target
        if getattr(fn, "__module__", None) == "torch.multiprocessing.spawn":
            fn = current._args[0]
        fn = getattr(fn, "func", fn)  # functools.partial
        fn = getattr(fn, "__func__", fn)  # a bound method
        code = fn.__code__
        return [fn.__qualname__, code.co_filename, code.co_firstlineno]
    except Exception:
        return None


def _end(failed):
    try:
        dist = _opened()
        record = {
            "event": "end",
            "pid": os.getpid(),
            "open": dist is not None,
            "exit": "exception" if failed else "normal",
            "files": _left_open(),
            "target": _target(),
        }
        if dist is not None:
            try:
                record["rank"] = dist.get_rank()
                record["backend"] = str(dist.get_backend())
            except Exception:
                pass
        _write(record)
    except Exception:
        pass


def _at_exit():
    # pytest notes the failures of tests in the same place.
    _end(getattr(sys, "last_type", None) is not None and "_pytest" not in sys.modules)


def _argv():
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(a) for a in f.read().split(b"\0")[:-1]]
    except OSError:
        return getattr(sys, "argv", [])


def _start():
    try:
        _inherited["files"] = frozenset(_files())
        _write({"event": "start", "pid": os.getpid(), "ppid": os.getppid(), "argv": _argv()})
    except Exception:
        pass


def _forked():
    # subprocess forks only to run another program, which speaks for itself.
    if sys._getframe(1).f_globals.get("__name__") == "subprocess":
        return
    dist = sys.modules.get("torch.distributed")
    _inherited["group"] = _group(dist) if dist is not None else None
    _start()
    # multiprocessing ends its children by os._exit, after its own finalizers.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_multiprocessing_child, _multiprocessing_child)


def _multiprocessing_child(_):
    def finish():
        kind, value, _ = sys.exc_info()
        ended = kind is None or issubclass(kind, SystemExit) and value.code in (None, 0)
        _end(not ended)

    # The lowest priority runs last, after whatever else may close the group.
    sys.modules["multiprocessing.util"].Finalize(None, finish, exitpriority=-(1 << 30))


def _give_way():
    """Runs the sitecustomize that this one stands in front of, if there is one."""
    here = os.path.dirname(os.path.realpath(__file__))
    own = sys.modules.pop("sitecustomize")
    sys.path[:] = [p for p in sys.path if os.path.realpath(p) != here]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as e:
        if e.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


if _FOLDER:
    _start()
    atexit.register(_at_exit)  # registered first, so it runs last
    os.register_at_fork(after_in_child=_forked)
_give_way()
