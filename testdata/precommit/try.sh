#!/bin/sh
# Runs the hooks of .pre-commit-hooks.yaml under pre-commit, by real commits in
# repositories of their own, and a user's own hook that takes the wheel:
#
#	testdata/precommit/try.sh [PRE_COMMIT]
#
# PRE_COMMIT is the pre-commit to use. What is tested is what is committed here; a
# wheel is built of the work tree. Needed are git, Go and a C compiler. The first
# thing that does not hold ends it with status 1.
set -eu
pre_commit=$(command -v "${1:-pre-commit}") || {
	echo "try.sh: no ${1:-pre-commit}; python3 -m venv and pip install pre-commit give one" >&2
	exit 1
}
pre_commit=$(realpath -s "$pre_commit")
cd "$(dirname "$0")/../.."
top=$PWD
tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT # Go's modules are read-only
export PRE_COMMIT_HOME="$tmp/home" XDG_STATE_HOME="$tmp/state" GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.com

fail() {
	echo "try.sh: $1" >&2
	cat "$tmp/out" >&2
	exit 1
}

# start: a new repository whose commits run the hooks that stdin gives.
start() {
	rm -rf "$tmp/repo"
	git init -q "$tmp/repo"
	cd "$tmp/repo"
	cat >.pre-commit-config.yaml
	"$pre_commit" install >"$tmp/out" 2>&1 || fail "pre-commit install ended with $?"
	cat >train.py <<-'PY'
		import cluster

		if __name__ == "__main__":
		    cluster.connect()
		    print("trained")
	PY
	cat >cluster.py <<-'PY'
		def connect():
		    pass
	PY
	commit 0 Passed
	echo "# Notes" >README.md
	commit 0 'no files to check'
	# From now on train.py leaks, although it is not what was changed.
	cat >cluster.py <<-'PY'
		import torch.distributed as dist


		def connect():
		    dist.init_process_group("nccl")
	PY
}

# commit STATUS TEXT...: git commit of everything ends so and says all that.
commit() {
	want=$1
	shift
	git add -A
	status=0
	git commit -m change >"$tmp/out" 2>&1 || status=$?
	[ "$status" -eq "$want" ] || fail "git commit ended with $status, not $want"
	for text; do
		grep -qF -e "$text" "$tmp/out" || fail "git commit did not say: $text"
	done
}

finding='train.py:4:5: connect opens a process group that is never destroyed'

git clone -q "$top" "$tmp/hooks"
rev=$(git -C "$tmp/hooks" rev-parse HEAD)
"$pre_commit" validate-manifest "$tmp/hooks/.pre-commit-hooks.yaml"

echo "try.sh: ncclfix at $rev"
start <<EOT
repos:
  - repo: $tmp/hooks
    rev: $rev
    hooks:
      - id: ncclfix
EOT
commit 1 Failed 'exit code: 1' "$finding" '[teardown/script]'
cat "$tmp/out"
[ -z "$(git diff)" ] || fail "the check changed a file"
sed -i 's/^    cluster.connect()/&  # ncclfix: ignore/' train.py
commit 0 Passed

echo "try.sh: ncclfix-fix at $rev"
start <<EOT
repos:
  - repo: $tmp/hooks
    rev: $rev
    hooks:
      - id: ncclfix-fix
EOT
commit 1 Failed 'files were modified by this hook' '+        dist.destroy_process_group()'
cat "$tmp/out"
git diff --quiet -- cluster.py || fail "cluster.py changed"
grep -q 'dist.destroy_process_group()' train.py || fail "train.py is not repaired"
commit 0 Passed

echo "try.sh: the wheel"
wheel=$(cd "$top" && go run ./cmd/mkwheel -o "$tmp/dist")
start <<EOT
repos:
  - repo: local
    hooks:
      - id: ncclfix
        name: ncclfix
        entry: ncclfix check
        language: python
        additional_dependencies: ["$wheel"]
        files: '(\.py|\.toml|\.ini|(^|/)setup\.cfg)$'
        pass_filenames: false
EOT
commit 1 Failed 'exit code: 1' "$finding" '[teardown/script]'
cat "$tmp/out"
sed -i 's/^    cluster.connect()/&  # ncclfix: ignore/' train.py
commit 0 Passed
echo "try.sh: all of it holds"
