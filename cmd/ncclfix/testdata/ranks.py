"""Runs programs under PyTorch without importing PyTorch anew for each of them.

Each line of the standard input is one run, as JSON: dir, argv (as behind
"python3"), ranks (the environment of each process, beside this one's), out (a
folder for their output) and timeout (seconds). The answer is a line with the exit
status of each process. A process is a fork of this one, which runs the program as
__main__ and ends as every interpreter does, exit handlers included.
"""

import gc
import json
import os
import runpy
import signal
import sys
import time

import torch.distributed


def serve():
    """Answers runs until the input ends; in a forked child, returns its part of one."""
    for line in sys.stdin:
        run = json.loads(line)
        pids = []
        for rank, env in enumerate(run["ranks"]):
            pid = os.fork()
            if pid == 0:
                return run, rank, env
            pids.append(pid)
        print(json.dumps(wait(pids, time.monotonic() + run["timeout"])), flush=True)
    return None


def wait(pids, deadline):
    status = [None] * len(pids)
    while None in status:
        for i, pid in enumerate(pids):
            if status[i] is None:
                done, code = os.waitpid(pid, os.WNOHANG)
                if done:
                    status[i] = os.waitstatus_to_exitcode(code)
                elif time.monotonic() > deadline:
                    os.killpg(pid, signal.SIGKILL)
        time.sleep(0.005)
    return status


def become(run, rank, env):
    os.setpgid(0, 0)
    os.chdir(run["dir"])
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = os.open(os.path.join(run["out"], "%d.txt" % rank), os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if run["argv"][0] == "-m":
        sys.argv = run["argv"][1:]
        sys.path[0] = run["dir"]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = run["argv"]
        path = os.path.join(run["dir"], sys.argv[0])
        sys.path[0] = os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")


gc.freeze()  # what is here now need not be looked at in every child
job = serve()
if job:
    become(*job)
