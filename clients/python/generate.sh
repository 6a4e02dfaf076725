#!/bin/sh
# Makes src/pawl/v1 anew from the protos of the API. It needs Debian's protobuf-compiler, libprotobuf-dev (google/protobuf/*.proto)
# and mypy-protobuf. Code of protoc 3.21 works with that version of python3-protobuf and later ones.
set -eu
cd "$(dirname "$0")"
out=src/pawl/v1
rm -rf "$out"
cd ../../api # the operators' services are left out: the SDK has no calls for them
protoc --proto_path=. --python_out=../clients/python/src --mypy_out=quiet:../clients/python/src \
	pawl/v1/breaker.proto pawl/v1/chain.proto pawl/v1/explain.proto pawl/v1/group.proto pawl/v1/once.proto pawl/v1/producer.proto \
	pawl/v1/schedule.proto pawl/v1/task.proto pawl/v1/worker.proto
cd ../clients/python
echo '"""The messages of the API as protobuf has them, generated from api/pawl/v1: not a stable interface of this package."""' >"$out/__init__.py"
