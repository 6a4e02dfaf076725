#!/bin/sh
# Runs the tests of this package and checks its types. Missing dependencies are installed from Debian; where that is not possible, the tests
# that need them are skipped with a message. TOOLS=no installs nothing. PYTHON names another interpreter.
set -eu
cd "$(dirname "$0")"
needs="python3-grpcio python3-protobuf python3-pytest python3-cryptography mypy python3-build python3-wheel"

find_python() {
	for each in "${PYTHON:-python3}" /usr/bin/python3; do
		if "$each" -c 'import sys, google.protobuf, grpc, pytest; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
			echo "$each"
			return
		fi
	done
	return 1
}

has_all() {
	python=$(find_python) && "$python" -c 'import cryptography' && command -v mypy
}

can_install() { [ "${TOOLS:-}" != no ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

if can_install && ! has_all >/dev/null 2>&1; then
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $needs; } || true
fi
if ! python=$(find_python); then
	echo "Python 3.10 with grpcio, protobuf and pytest is missing, and Debian's $needs could not be installed: the tests of the Python SDK can't run"
	if can_install; then exit 1; fi # or a mistake in this script would skip them unseen
	exit
fi
if command -v mypy >/dev/null; then
	mypy
else
	echo "mypy is missing: the types of the Python SDK are not checked"
fi
"$python" -c 'import cryptography' 2>/dev/null || echo "cryptography is missing: the tests of the Python SDK's keyring are skipped"
# Tests that hang are ended after 15 minutes. pytest then prints the stack of each thread.
limit=$(command -v timeout >/dev/null && echo "timeout --foreground --signal=ABRT 15m" || true)
$limit "$python" -m pytest "$@"
