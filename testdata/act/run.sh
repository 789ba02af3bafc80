#!/bin/bash
# Runs action.yml under act, without Docker, on the event of a pull request.
#
# usage: testdata/act/run.sh ACT
#
# ACT is the program: go install github.com/nektos/act@v0.2.89 builds it. Needs Go,
# gcc and git. Exit status 0 says that the annotation and the summary were there.
set -euo pipefail
act=$(realpath "$1")
here=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
git clone -q --no-hardlinks "$here" "$dir/repo"
cd "$dir/repo"
git remote set-url origin https://github.com/o/r.git # act takes the repository's name from it
git config user.name Ada && git config user.email ada@example.org
cp "$here/action.yml" .
mkdir -p .github/workflows leaking
cat >.github/workflows/ncclfix.yml <<'YAML'
on: pull_request
jobs:
  annotate:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: ./
        with:
          path: leaking
YAML
cat >leaking/train.py <<'PY'
import torch.distributed as dist

dist.init_process_group("gloo")
PY
git add -A && git commit -q -m "A leaking script"
cat >event.json <<JSON
{"number": 1, "pull_request": {"number": 1, "head": {"ref": "topic", "sha": "$(git rev-parse HEAD)"}, "base": {"ref": "main"}}}
JSON
status=0
HOME=$dir XDG_CACHE_HOME=$dir "$act" pull_request -P ubuntu-latest=-self-hosted -e event.json --no-cache-server \
	--env GOCACHE="$(go env GOCACHE)" --env GOMODCACHE="$(go env GOMODCACHE)" 2>&1 | tee "$dir/log" || status=$?
grep -q 'init_process_group opens a process group' "$dir/log" || { echo "act: no annotation" >&2; exit 1; }
grep -q '### ncclfix: 1 fix' "$dir/log" || { echo "act: no summary" >&2; exit 1; }
[ "$status" = 1 ] || { echo "act: exit status $status, not 1 for what is found" >&2; exit 1; }
echo "act: the action annotates, and fails for what is found" >&2
