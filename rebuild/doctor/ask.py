# Run by the interpreter that is examined: says what is installed there, without
# importing any of it, as JSON on standard output.
import importlib.metadata as metadata
import importlib.util
import json
import os
import re
import sys

answer = {
    "executable": sys.executable,
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "venv": sys.prefix != sys.base_prefix,
    "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
    "installed": {},
    "torchCUDA": "",
    "nvshmem": "",
}
for name in sys.argv[1:]:
    try:
        answer["installed"][name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass


def folder(package):
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ""
    places = list(spec.submodule_search_locations or []) if spec else []
    return places[0] if places else ""


torch = folder("torch")
if torch:
    try:
        with open(os.path.join(torch, "version.py")) as f:
            text = f.read()
        found = re.search(r"^cuda\s*(?::[^=]*)?=\s*'([^']*)'", text, re.M)
        answer["torchCUDA"] = found.group(1) if found else ""
    except OSError:
        pass
answer["nvshmem"] = folder("nvidia.nvshmem")
print(json.dumps(answer))
