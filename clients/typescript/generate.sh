#!/bin/sh
# Regenerates src/gen, or DIR, from the protos of the API: generate.sh [DIR]. npm installs the tools in the versions pinned here, so that
# everyone gets the same code.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/src/gen}
tools=$here/../../.cache/protoc-gen-es
buf=1.75.0 es=2.17.0
mkdir -p "$tools" "$out"
grep -q "$buf $es" "$tools/versions" 2>/dev/null || {
	npm install --prefix "$tools" --no-save --no-audit --no-fund --loglevel=error "@bufbuild/buf@$buf" "@bufbuild/protoc-gen-es@$es"
	echo "$buf $es" >"$tools/versions"
}
out=$(cd "$out" && pwd)
rm -rf "$out/pawl"
PATH=$tools/node_modules/.bin:$PATH
cd "$here/../../api" # only what the SDK uses
buf generate --template "{\"version\":\"v2\",\"plugins\":[{\"local\":\"protoc-gen-es\",\"out\":\"$out\",\"opt\":[\"target=ts\",\"import_extension=js\"]}]}" \
	--path pawl/v1/access.proto --path pawl/v1/operation.proto --path pawl/v1/operator.proto --path pawl/v1/worker_registry.proto --path pawl/v1/stats.proto \
	--path pawl/v1/breaker.proto --path pawl/v1/call.proto --path pawl/v1/chain.proto --path pawl/v1/event.proto --path pawl/v1/explain.proto --path pawl/v1/group.proto \
	--path pawl/v1/once.proto --path pawl/v1/producer.proto --path pawl/v1/schedule.proto --path pawl/v1/task.proto --path pawl/v1/worker.proto
