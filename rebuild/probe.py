# Run by the interpreter that install.sh used: imports the modules of a wheel and
# writes to a file where they came from and what is installed.
import importlib
import importlib.metadata
import json
import os
import sys

out, distribution, *modules = sys.argv[1:]
files = {}
for name in modules:
    files[name] = os.path.realpath(importlib.import_module(name).__file__)
installed = importlib.metadata.distribution(distribution)
answer = {
    "interpreter": sys.executable,
    "folder": os.path.realpath(installed.locate_file("")),
    "record": installed.read_text("RECORD"),
    "files": files,
}
with open(out, "w") as f:
    json.dump(answer, f)
