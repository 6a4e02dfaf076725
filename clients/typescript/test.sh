#!/bin/sh
# Checks the types of this package and runs its tests. npm installs its dependencies, and Node if it is missing or too old. Where nothing can be
# installed, the tests are skipped with a message. TOOLS=no installs nothing. PAWL_BINARY names the broker's binary; without it, one is built.
set -eu
cd "$(dirname "$0")"
cache=$(cd ../.. && pwd)/.cache/node

recent() {
	command -v "$1" >/dev/null && "$1" -e '
		const [major, minor] = process.versions.node.split(".");
		process.exit(major > 22 || (major == 22 && minor >= 12) || (major == 20 && minor >= 19) ? 0 : 1)'
}

can_install() { [ "${TOOLS:-}" != no ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

if can_install && ! command -v npm >/dev/null; then
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends nodejs npm; } || true
fi
if [ "${TOOLS:-}" != no ] && ! recent node && command -v npm >/dev/null; then
	recent "$cache/node_modules/.bin/node" || npm install --prefix "$cache" --no-save --no-audit --no-fund --loglevel=error node@22 || true
	PATH=$cache/node_modules/.bin:$PATH
fi
installed() { # the versions in package-lock.json
	cmp -s package-lock.json node_modules/.installed || { [ "${TOOLS:-}" != no ] && npm ci --no-audit --no-fund --loglevel=error && cp package-lock.json node_modules/.installed; }
}
if ! recent node || ! installed; then
	echo "Node 20.19 or 22.12 or the packages of package-lock.json are missing and could not be installed: the tests of the TypeScript SDK can't run"
	if can_install; then exit 1; fi # or a mistake in this script would skip them unseen
	exit
fi

rm -rf build
node_modules/.bin/tsc -p .
if [ -z "${PAWL_BINARY:-}" ]; then
	PAWL_BINARY=$(mktemp -d)/pawl
	trap 'rm -r "$(dirname "$PAWL_BINARY")"' EXIT
	(cd ../.. && go build -o "$PAWL_BINARY" ./cmd/pawl)
	export PAWL_BINARY
fi
if [ $# -eq 0 ]; then set -- build/tests/*.test.js; fi
node --test --test-timeout=600000 --test-reporter=dot "$@" # a file that takes ten minutes hangs
