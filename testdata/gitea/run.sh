#!/bin/bash
# Runs the bot against a real Gitea on 127.0.0.1 and reads back what it did.
#
# usage: testdata/gitea/run.sh [FOLDER]
#
# Gitea is built from its Go module, in FOLDER (a temporary one by default, several
# gigabytes): about three minutes on two cores, once for each folder. Needs Go, gcc,
# git, curl and python3. Exit status 0 says that all of it was as it should be.
set -euo pipefail
version=v1.26.0
here=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)

say() { echo "gitea: $*" >&2; }
die() { say "$*"; exit 1; }

if [ ! -x "$work/gitea" ]; then
	say "building Gitea $version in $work"
	module=$(cd / && go mod download -json "code.gitea.io/gitea@$version" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
	rm -rf "$work/src" && cp -r "$module" "$work/src" && chmod -R u+w "$work/src"
	# Its own go.mod is the main one here, so that its replacements count.
	(cd "$work/src" && go build -tags "sqlite sqlite_unlock_notify" -ldflags "-X main.Version=${version#v}" -o ../gitea .)
fi
(cd "$here" && go build -o "$work/ncclfix" ./cmd/ncclfix)

# Gitea does not run as root.
as_user=()
if [ "$(id -u)" = 0 ]; then
	as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
run=$(mktemp -d)
chmod 755 "$run" "$work"
mkdir -p "$run/data"
cat >"$run/app.ini" <<INI
RUN_MODE = prod
[server]
PROTOCOL = http
HTTP_ADDR = 127.0.0.1
HTTP_PORT = $port
ROOT_URL = http://127.0.0.1:$port/
STATIC_ROOT_PATH = $work/src
OFFLINE_MODE = true
DISABLE_SSH = true
[database]
DB_TYPE = sqlite3
PATH = $run/data/gitea.db
[repository]
ROOT = $run/data/repositories
[security]
INSTALL_LOCK = true
[log]
LEVEL = Error
INI
[ ${#as_user[@]} = 0 ] || chown -R 65534:65534 "$run"
gitea() { (cd "$run" && env -i PATH="$PATH" HOME="$run" USER=gitea GITEA_WORK_DIR="$run/data" "${as_user[@]}" "$work/gitea" --config "$run/app.ini" "$@"); }

gitea migrate >/dev/null
token=$(gitea admin user create --admin --username ada --password secret-of-ada --email ada@example.org --must-change-password=false --access-token --access-token-scopes all |
	sed -n 's/^Access token was successfully created[^ ]* *//p')
[ -n "$token" ] || die "no token"
gitea web >"$run/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$run"' EXIT
api=http://127.0.0.1:$port/api/v1
for _ in $(seq 100); do
	curl -fs "$api/version" >/dev/null && break
	sleep 0.2
done

call() { # METHOD PATH [JSON]
	curl -fsS -X "$1" -H "Authorization: token $token" -H 'Content-Type: application/json' ${3:+-d "$3"} "$api$2"
}
field() { python3 -c "import json, sys; v = json.load(sys.stdin); print($1)"; } # of the JSON on stdin, as v
want() { [ "$2" = "$3" ] || die "$1: $2, not $3"; }

export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export XDG_STATE_HOME=$run/state
call POST /user/repos '{"name": "r", "auto_init": true, "default_branch": "main"}' >/dev/null
remote=http://ada:$token@127.0.0.1:$port/ada/r.git
git clone -q "$remote" "$run/author"
cd "$run/author"
cat >train.py <<'PY'
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    print(dist.get_rank())


if __name__ == "__main__":
    main()
PY
git add -A && git commit -q -m "A script" && git push -q origin HEAD:main

bot() { # EXIT-STATUS ARGUMENT...
	local status=$1 got=0
	shift
	GITEA_ACTIONS=true GITHUB_API_URL=$api GITHUB_REPOSITORY=ada/r GITHUB_TOKEN=$token GITHUB_EVENT_PATH= \
		"$work/ncclfix" bot "$@" >"$run/out" 2>&1 || got=$?
	[ "$got" = "$status" ] || { cat "$run/out" >&2; die "bot $*: exit status $got, not $status"; }
	! grep -q "$token" "$run/out" || die "the token is printed"
}

say "mode pr"
git clone -q "http://127.0.0.1:$port/ada/r.git" "$run/pr" && cd "$run/pr"
bot 0 --mode pr
pull=$(call GET '/repos/ada/r/pulls?state=open' | field 'v[0]["number"]')
want "pull requests" "$(call GET '/repos/ada/r/pulls?state=open' | field 'len(v)')" 1
want "its branch" "$(call GET "/repos/ada/r/pulls/$pull" | field 'v["head"]["ref"]')" ncclfix/teardown
call GET "/repos/ada/r/pulls/$pull.diff" | grep '^+.*destroy_process_group()' >/dev/null || die "the pull request has no repair"
sha=$(call GET "/repos/ada/r/pulls/$pull" | field 'v["head"]["sha"]')
updated=$(call GET "/repos/ada/r/pulls/$pull" | field 'v["updated_at"]')
bot 0 --mode pr
want "pull requests after a second run" "$(call GET '/repos/ada/r/pulls?state=all' | field 'len(v)')" 1
want "its head" "$(call GET "/repos/ada/r/pulls/$pull" | field 'v["head"]["sha"]')" "$sha"
want "its last change" "$(call GET "/repos/ada/r/pulls/$pull" | field 'v["updated_at"]')" "$updated"

say "mode review"
cd "$run/author"
git checkout -q -b topic
sed 's/main/start/' train.py >second.py
printf '\n\ndef other():\n    pass\n' >>README.md
git add -A && git commit -q -m "A second script" && git push -q origin topic
review=$(call POST /repos/ada/r/pulls '{"title": "Second", "head": "topic", "base": "main"}' | field 'v["number"]')
git clone -q -b topic "http://127.0.0.1:$port/ada/r.git" "$run/review" && cd "$run/review"
bot 1 --mode review --pull "$review"
comments() {
	for id in $(call GET "/repos/ada/r/pulls/$review/reviews" | field '" ".join(str(r["id"]) for r in v)'); do
		call GET "/repos/ada/r/pulls/$review/reviews/$id/comments" | field '"\n".join(c["path"] + ":" + str(c["position"]) for c in v)'
	done
}
want "review comments" "$(comments)" "second.py:6"
want "summaries" "$(call GET "/repos/ada/r/issues/$review/comments" | field 'sum("ncclfix:v1 summary" in c["body"] for c in v)')" 1
call GET "/repos/ada/r/issues/$review/comments" | field 'v[0]["body"]' | grep '^+.*destroy_process_group()' >/dev/null || die "the summary has no repair of train.py"
bot 1 --mode review --pull "$review"
want "review comments after a second run" "$(comments)" "second.py:6"
want "comments after a second run" "$(call GET "/repos/ada/r/issues/$review/comments" | field 'len(v)')" 1

say "mode push"
bot 0 --mode push --pull "$review"
call GET "/repos/ada/r/pulls/$review.diff" | grep '^+.*destroy_process_group()' >/dev/null || die "nothing was pushed"
bot 2 --mode push --pull "$review" # what is checked out is no longer the head
git fetch -q origin topic && git checkout -q FETCH_HEAD
bot 0 --mode review --pull "$review"
call GET "/repos/ada/r/issues/$review/comments" | field 'v[0]["body"]' | grep 'nothing is left' >/dev/null || die "the summary is not up to date"

say "merged: mode pr closes"
call POST "/repos/ada/r/pulls/$review/merge" '{"Do": "merge"}' >/dev/null
for _ in $(seq 50); do
	[ "$(call GET "/repos/ada/r/pulls/$review" | field 'v["merged"]')" = True ] && break
	sleep 0.2
done
cd "$run/pr" && git fetch -q origin main && git checkout -q FETCH_HEAD
bot 0 --mode pr
want "open pull requests" "$(call GET '/repos/ada/r/pulls?state=open' | field 'len(v)')" 0
want "branches" "$(call GET '/repos/ada/r/branches' | field '" ".join(sorted(b["name"] for b in v))')" "main topic"
say "all of it is as it should be"
