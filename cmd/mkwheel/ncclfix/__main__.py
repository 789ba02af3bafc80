"""Runs the program ncclfix that was installed along with this package."""

import os
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution


def places():
    """Where the program may be, the most certain place first."""
    try:
        for f in distribution("ncclfix").files or ():
            if f.name == "ncclfix":  # the package's own files are named otherwise
                yield str(f.locate())
    except PackageNotFoundError:
        pass
    # pip install --target moves the files after it noted their places.
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "ncclfix")
    yield os.path.join(sysconfig.get_path("scripts"), "ncclfix")


def main():
    for program in places():
        if os.path.isfile(program) and os.access(program, os.X_OK):
            os.execv(program, [program, *sys.argv[1:]])
    print("ncclfix: the program is not where pip puts it; reinstall the package", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
