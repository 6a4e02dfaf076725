#!/bin/sh
# Regenerates src/pawl/v1, or DIR/pawl/v1, from the protos of the API: generate.sh [DIR]. It needs Debian's protobuf-compiler,
# libprotobuf-dev (google/protobuf/*.proto) and mypy-protobuf. Code of protoc 3.21 works with that version of python3-protobuf and later ones.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:-$here/src}" && pwd)
rm -rf "$out/pawl/v1"
cd "$here/../../api" # what the SDK has no calls for is left out
protoc --proto_path=. --python_out="$out" --mypy_out=quiet:"$out" \
	pawl/v1/access.proto pawl/v1/breaker.proto pawl/v1/call.proto pawl/v1/chain.proto pawl/v1/explain.proto pawl/v1/group.proto pawl/v1/once.proto \
	pawl/v1/operation.proto pawl/v1/operator.proto pawl/v1/producer.proto pawl/v1/worker_registry.proto pawl/v1/schedule.proto \
	pawl/v1/stats.proto pawl/v1/task.proto pawl/v1/worker.proto
echo '"""The messages of the API as protobuf has them, generated from api/pawl/v1: not a stable interface of this package."""' >"$out/pawl/v1/__init__.py"
