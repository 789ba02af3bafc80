#!/usr/bin/env python3
"""Checks the requests of the bot's tests against GitHub's description of its API.

usage: check.py api.github.com.deref.json REQUESTS

The first file is of npm's @octokit/openapi, the second is what the tests write with
NCCLFIX_REQUESTS=REQUESTS go test ./cmd/ncclfix -run TestBot. Needs jsonschema from
PyPI. Exit status 1 says that a request is not as GitHub wants it.
"""
import json
import re
import sys

import jsonschema


def schema_of(paths, method, path):
    """Returns the template that the path fits, and the schema of its body."""
    for template, item in paths.items():
        pattern = re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in item:
            content = item[method.lower()].get("requestBody", {}).get("content", {})
            return template, content.get("application/json", {}).get("schema")
    return None, None


def main(api, requests):
    with open(api) as f:
        paths = json.load(f)["paths"]
    seen, bad = {}, 0
    with open(requests) as f:
        for line in f:
            r = json.loads(line)
            template, schema = schema_of(paths, r["method"], r["path"])
            key = f"{r['method']} {template}"
            if schema is None:
                print(f"{r['method']} {r['path']}: no such request")
                bad += 1
                continue
            # The description lets any further key pass, which hides misspelt ones.
            strict = {**schema, "additionalProperties": False} if "properties" in schema else schema
            for err in jsonschema.Draft202012Validator(strict).iter_errors(r["body"]):
                print(f"{key}: {'/'.join(map(str, err.absolute_path))}: {err.message}")
                bad += 1
            seen[key] = seen.get(key, 0) + 1
    for key, n in sorted(seen.items()):
        print(f"{n:4} {key}")
    if not seen:
        print("no requests")
    return 1 if bad or not seen else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
