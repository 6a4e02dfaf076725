// Package internal holds the test of the repository's structure: which package may import which, and that each package comment says
// what the package does and what it does not know.
package internal

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/pawlq/pawl"

// mayImport is the table behind docs/architecture.md: for each package, the packages of this module that its non-test code may
// import.
var mayImport = map[string][]string{
	"": {"api/pawl/v1", "internal/client", "internal/client/convert", "internal/client/encrypt",
		"internal/client/gather", "internal/client/lease", "internal/client/outcome", "internal/client/route", "internal/client/rpc",
		"internal/client/spec", "internal/client/telemetry", "internal/client/work", "internal/version", "keyring", "pawltype"},
	"admin": {"", "api/pawl/v1", "internal/client", "internal/client/convert", "internal/client/rpc",
		"internal/client/spec", "internal/humanize", "pawltype"},
	"claims": {"", "api/pawl/v1", "internal/client", "internal/client/convert", "internal/client/lease",
		"internal/client/outcome", "internal/client/rpc", "internal/client/telemetry", "pawltype"},
	"keyring": {"internal/client/convert"},
	"outbox": {"", "api/pawl/v1", "internal/apijson", "internal/client/convert", "internal/client/spec",
		"internal/client/telemetry", "internal/contract", "internal/task", "pawltype"},
	"outbox/pgxoutbox": {"outbox"},
	"pawltype":         {},
	"internal/client": {"api/pawl/v1", "internal/client/encrypt", "internal/client/lease", "internal/client/route",
		"internal/client/rpc", "internal/client/telemetry", "keyring"},
	"internal/client/convert": {"api/pawl/v1", "pawltype"},
	"internal/client/encrypt": {"api/pawl/v1", "internal/client/convert", "internal/client/rpc", "keyring", "pawltype"},
	"internal/client/gather":  {"api/pawl/v1", "internal/client/convert", "internal/client/rpc", "pawltype"},
	"internal/client/lease": {"api/pawl/v1", "internal/client/convert", "internal/client/encrypt", "internal/client/outcome",
		"internal/client/rpc", "internal/client/telemetry", "pawltype"},
	"internal/client/outcome":   {"api/pawl/v1", "internal/client/encrypt", "internal/client/rpc", "keyring", "pawltype"},
	"internal/client/route":     {"api/pawl/v1", "internal/client/convert", "internal/client/rpc", "internal/grpcpool", "pawltype"},
	"internal/client/rpc":       {"internal/client/convert", "pawltype"},
	"internal/client/spec":      {"api/pawl/v1", "internal/client/convert", "internal/client/rpc", "pawltype"},
	"internal/client/telemetry": {"api/pawl/v1", "internal/client/convert", "internal/version", "pawltype"},
	"internal/client/work": {"api/pawl/v1", "internal/client/convert", "internal/client/lease", "internal/client/outcome",
		"internal/client/route", "internal/client/rpc", "internal/client/telemetry", "pawltype"},
	"internal/version": {},
	"api/keda":         {},
	"api/pawl/v1":      {},
	"cmd/pawl": {"", "admin", "api/pawl/v1", "cmd/internal/cli", "cmd/internal/contexts", "cmd/internal/text",
		"cmd/internal/tracing", "cmd/pawl/internal/config", "cmd/pawl/internal/demo", "cmd/pawl/internal/serve", "cmd/pawl/internal/top",
		"cmd/pawl/internal/view", "cmd/pawl/internal/program", "internal/apijson", "internal/archive", "internal/auth/bearer",
		"internal/backup", "internal/certs", "internal/humanize", "internal/node", "internal/task", "internal/version",
		"keyring", "pawltype"},
	"cmd/pawl-bench":     {"cmd/internal/bench", "cmd/internal/cli"},
	"cmd/pawl-outbox":    {"cmd/internal/cli", "cmd/internal/relay"},
	"cmd/internal/bench": {"", "admin", "claims", "cmd/internal/cli", "internal/version", "pawltype"},
	"cmd/internal/cli": {"", "admin", "api/pawl/v1", "cmd/internal/contexts", "cmd/internal/text", "internal/apijson",
		"internal/auth/bearer", "internal/certs", "internal/client", "internal/contract", "internal/humanize", "internal/version",
		"keyring", "pawltype"},
	"cmd/internal/contexts":    {},
	"cmd/pawl/internal/config": {"cmd/internal/cli"},
	"cmd/pawl/internal/demo":   {"", "admin", "cmd/internal/cli", "cmd/internal/text", "embedded", "pawltype"},
	"cmd/internal/relay":       {"", "cmd/internal/cli", "cmd/internal/text", "cmd/internal/tracing", "outbox", "outbox/pgxoutbox"},
	"cmd/pawl/internal/serve": {"cmd/internal/cli", "cmd/internal/tracing", "cmd/pawl/internal/config", "internal/audit/trail",
		"internal/certs", "internal/node", "internal/transport", "internal/ui", "internal/version"},
	"cmd/internal/text": {"internal/humanize", "keyring"},
	"cmd/pawl/internal/top": {"", "admin", "cmd/internal/cli", "cmd/internal/text", "cmd/pawl/internal/view", "internal/humanize",
		"pawltype"},
	"cmd/internal/tracing": {"cmd/internal/cli", "internal/version"},
	"cmd/pawl/internal/view": {"", "admin", "api/pawl/v1", "cmd/internal/cli", "cmd/internal/text", "internal/apijson",
		"internal/client/convert", "internal/client/spec", "pawltype"},
	"cmd/pawl/internal/program": {"", "cmd/internal/cli", "cmd/internal/tracing", "internal/apijson", "pawltype"},
	"embedded":                  {"", "internal/node", "internal/version"},
	"pawltest":                  {"", "admin", "internal/node", "internal/version", "pawltype"},
	"examples":                  {"", "embedded"},
	"internal/apijson":          {"api/pawl/v1", "internal/contract", "internal/humanize", "internal/task"},
	"internal/archive":          {"internal/task"},
	"internal/audit":            {"internal/store", "internal/task"},
	"internal/audit/trail":      {"internal/task"},
	"internal/auth":             {"internal/auth/bearer", "internal/store", "internal/task"},
	"internal/auth/bearer":      {},
	"internal/backup":           {},
	"internal/certs":            {},
	"internal/broker/waiting":   {"internal/engine", "internal/engine/explain", "internal/shard", "internal/store", "internal/task"},
	"internal/broker/tasklog":   {"internal/engine", "internal/engine/query", "internal/task"},
	"internal/broker": {"internal/archive", "internal/audit", "internal/broker/tasklog", "internal/broker/waiting",
		"internal/engine", "internal/engine/actions", "internal/engine/breaker", "internal/engine/cache", "internal/engine/explain",
		"internal/engine/fingerprint", "internal/engine/notify", "internal/engine/once", "internal/engine/operation",
		"internal/engine/policies", "internal/engine/query", "internal/engine/schedule", "internal/engine/schema",
		"internal/engine/unique", "internal/engine/workflow", "internal/events", "internal/parallel", "internal/shard",
		"internal/stats", "internal/store", "internal/task", "internal/verb"},
	"internal/cluster": {"internal/audit", "internal/auth", "internal/humanize", "internal/parallel", "internal/store",
		"internal/system", "internal/system/auditlog", "internal/system/markers", "internal/system/namespaces", "internal/system/queues",
		"internal/system/quotas", "internal/system/schedules", "internal/system/tokens", "internal/system/webhooks",
		"internal/system/workers", "internal/task", "internal/verb"},
	"internal/system/auditlog": {"internal/audit", "internal/store", "internal/system", "internal/task", "internal/verb"},
	"internal/system":          {"internal/audit", "internal/store", "internal/task"},
	"internal/contract":        {"api/pawl/v1", "internal/task"},
	"internal/cron":            {},
	"internal/engine": {"internal/engine/breaker", "internal/engine/cache", "internal/engine/deadline",
		"internal/engine/fingerprint", "internal/engine/lanes", "internal/engine/limit", "internal/engine/schema",
		"internal/engine/unique", "internal/engine/zonemap", "internal/store", "internal/task"},
	"internal/engine/limit":   {"internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/breaker": {"internal/engine/schema", "internal/humanize", "internal/store", "internal/task"},
	"internal/engine/cache":   {"internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/check": {"internal/engine", "internal/engine/breaker", "internal/engine/fingerprint", "internal/engine/limit",
		"internal/engine/schema", "internal/engine/zonemap", "internal/store", "internal/task"},
	"internal/engine/checktest": {"internal/engine/schema", "internal/task"},
	"internal/engine/actions":   {"internal/audit", "internal/engine", "internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/deadline":  {"internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/unique":    {"internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/explain": {"internal/engine", "internal/engine/breaker", "internal/engine/lanes", "internal/engine/limit",
		"internal/engine/query", "internal/engine/schema", "internal/humanize", "internal/store", "internal/task"},
	"internal/engine/lanes": {"internal/engine/limit", "internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/notify": {"internal/engine", "internal/engine/fingerprint", "internal/engine/schema", "internal/store",
		"internal/task"},
	"internal/engine/once": {"internal/engine", "internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/operation": {"internal/audit", "internal/engine", "internal/engine/actions", "internal/engine/query",
		"internal/engine/schema", "internal/engine/unique", "internal/store", "internal/task"},
	"internal/engine/policies": {"internal/engine", "internal/engine/actions", "internal/engine/check", "internal/engine/notify",
		"internal/engine/once", "internal/engine/operation", "internal/engine/schedule", "internal/engine/workflow",
		"internal/store"},
	"internal/engine/schedule": {"internal/audit", "internal/cron", "internal/engine", "internal/engine/actions",
		"internal/engine/schema", "internal/store", "internal/task"},
	"internal/engine/workflow": {"internal/audit", "internal/engine", "internal/engine/actions", "internal/engine/schema",
		"internal/store", "internal/task"},
	"internal/engine/fingerprint": {"internal/task"},
	"internal/engine/query": {"internal/engine/fingerprint", "internal/engine/schema", "internal/engine/zonemap",
		"internal/store", "internal/task"},
	"internal/engine/schema":  {"internal/store", "internal/task"},
	"internal/engine/zonemap": {"internal/engine/schema", "internal/store", "internal/task"},
	"internal/events":         {"internal/task"},
	"internal/parallel":       {},
	"internal/gateway": {"api/keda", "api/pawl/v1", "internal/admission", "internal/audit/trail", "internal/auth",
		"internal/broker", "internal/broker/tasklog", "internal/contract", "internal/gateway/access",
		"internal/gateway/administration", "internal/gateway/callinfo", "internal/gateway/apiproto", "internal/gateway/fanout",
		"internal/gateway/listen", "internal/gateway/receive", "internal/gateway/send", "internal/gateway/statistics",
		"internal/gateway/tasktrace", "internal/gateway/watch", "internal/humanize", "internal/parallel", "internal/registry",
		"internal/rest", "internal/sqs", "internal/stats", "internal/system/auditlog", "internal/system/queues",
		"internal/system/workers", "internal/task", "internal/verb"},
	"internal/grpcpool": {},
	"internal/humanize": {},
	"internal/metrics":  {"internal/stats"},
	"internal/node": {"admin", "internal/archive", "internal/audit", "internal/audit/trail", "internal/auth", "internal/backup",
		"internal/broker", "internal/broker/tasklog", "internal/certs", "internal/cluster", "internal/gateway",
		"internal/gateway/administration", "internal/gateway/listen", "internal/metrics", "internal/node/datadir",
		"internal/node/evidence", "internal/node/members", "internal/ondisk", "internal/parallel", "internal/raftlog",
		"internal/registry", "internal/rest", "internal/router", "internal/router/claim", "internal/router/forward",
		"internal/shard", "internal/sqs", "internal/stats", "internal/store", "internal/system/auditlog", "internal/system/queues",
		"internal/system/tokens", "internal/system/webhooks", "internal/task", "internal/transport", "internal/ui", "internal/verb",
		"internal/webhook"},
	"internal/node/datadir": {"internal/archive", "internal/ondisk", "internal/task"},
	"internal/node/evidence": {"internal/audit", "internal/audit/trail", "internal/auth", "internal/node/members",
		"internal/shard", "internal/store", "internal/system/tokens", "internal/task", "internal/verb"},
	"internal/node/members": {"internal/cluster", "internal/node/datadir", "internal/shard"},
	"internal/rest": {"api/pawl/v1", "internal/admission", "internal/apijson", "internal/contract", "internal/humanize",
		"internal/task"},
	"internal/registry": {"internal/task", "internal/verb"},
	"internal/router": {"internal/broker", "internal/cluster", "internal/events", "internal/registry", "internal/router/claim",
		"internal/router/enqueue", "internal/router/forward", "internal/stats", "internal/system/auditlog",
		"internal/system/queues", "internal/system/schedules", "internal/system/workers", "internal/task", "internal/verb"},
	"internal/ondisk":    {},
	"internal/raftlog":   {"internal/ondisk", "internal/wal"},
	"internal/admission": {},
	"internal/shard":     {"internal/raftlog", "internal/store"},
	"internal/sqs": {"internal/admission", "internal/broker", "internal/contract", "internal/sqs/wire", "internal/system/queues",
		"internal/task"},
	"internal/sqs/wire":        {},
	"internal/stats":           {"internal/task", "internal/verb"},
	"internal/store":           {"internal/ondisk"},
	"internal/task":            {"pawltype"},
	"test":                     {},
	"test/conformance":         {},
	"test/conformance/outside": {},
	"test/docs":                {},
	"test/history":             {},
	"test/pictures":            {},
	"test/sqsform":             {},
	"internal/testdb":          {},
	"internal/transport":       {"internal/certs", "internal/grpcpool"},
	"internal/ui": {"", "admin", "internal/auth", "internal/humanize", "internal/ui/chart", "internal/ui/form",
		"internal/ui/format", "internal/ui/tasks", "internal/ui/visitor", "internal/ui/web", "pawltype"},
	"internal/ui/chart":  {"admin", "internal/humanize", "internal/ui/format"},
	"internal/ui/form":   {"admin", "internal/humanize", "internal/ui/format", "pawltype"},
	"internal/ui/format": {"admin", "keyring", "pawltype"},
	"internal/ui/tasks": {"", "admin", "internal/humanize", "internal/ui/chart", "internal/ui/form", "internal/ui/format",
		"internal/ui/visitor", "internal/ui/web", "pawltype"},
	"internal/ui/visitor": {"", "admin", "internal/auth", "internal/ui/format", "pawltype"},
	"internal/ui/web": {"", "admin", "internal/admission", "internal/humanize", "internal/ui/form", "internal/ui/format",
		"internal/ui/visitor", "pawltype"},
	"internal/verb":          {"internal/parallel", "internal/task"},
	"internal/verb/verbtest": {"internal/verb"},
	"internal/wal":           {"internal/ondisk"},
	"internal/webhook":       {"internal/auth", "internal/task"},
	"internal/system/markers": {"internal/audit", "internal/store", "internal/system", "internal/system/auditlog",
		"internal/system/namespaces", "internal/task", "internal/verb"},
	"internal/system/namespaces": {"internal/auth", "internal/parallel", "internal/store", "internal/system", "internal/system/auditlog",
		"internal/task", "internal/verb"},
	"internal/system/quotas": {"internal/parallel", "internal/store", "internal/system", "internal/system/namespaces",
		"internal/system/queues", "internal/task"},
	"internal/system/schedules": {"internal/store", "internal/system", "internal/system/namespaces", "internal/task",
		"internal/verb"},
	"internal/system/tokens": {"internal/auth", "internal/store", "internal/system", "internal/system/auditlog",
		"internal/system/namespaces", "internal/task", "internal/verb"},
	"internal/system/webhooks": {"internal/admission", "internal/audit", "internal/parallel", "internal/store",
		"internal/system", "internal/system/auditlog", "internal/system/namespaces", "internal/task", "internal/verb",
		"internal/webhook"},
	"internal/system/workers": {"internal/audit", "internal/store", "internal/system", "internal/system/auditlog",
		"internal/task", "internal/verb"},
	"internal/system/queues": {"internal/audit", "internal/events", "internal/parallel", "internal/store", "internal/system",
		"internal/system/auditlog", "internal/system/namespaces", "internal/task", "internal/verb"},
	"internal/router/forward": {"internal/broker", "internal/cluster", "internal/parallel", "internal/system/queues",
		"internal/system/schedules", "internal/task", "internal/verb"},
	"internal/router/enqueue": {"internal/broker", "internal/parallel", "internal/router/forward", "internal/system/auditlog",
		"internal/system/queues", "internal/system/webhooks", "internal/task", "internal/verb"},
	"internal/router/routertest": {"internal/broker", "internal/cluster", "internal/engine/schema", "internal/registry",
		"internal/router", "internal/router/claim", "internal/router/enqueue", "internal/router/forward", "internal/stats",
		"internal/system/queues", "internal/system/webhooks", "internal/task", "internal/verb", "internal/verb/verbtest"},
	"internal/gateway/access": {"api/pawl/v1", "internal/admission", "internal/audit/trail", "internal/auth",
		"internal/contract", "internal/gateway/callinfo", "internal/gateway/listen", "internal/rest", "internal/sqs",
		"internal/sqs/wire", "internal/task"},
	"internal/gateway/administration": {"api/pawl/v1", "internal/auth", "internal/auth/bearer", "internal/broker",
		"internal/cluster", "internal/contract", "internal/gateway/callinfo", "internal/gateway/apiproto", "internal/gateway/fanout",
		"internal/gateway/listen", "internal/parallel", "internal/system/markers", "internal/system/namespaces",
		"internal/system/tokens", "internal/system/webhooks", "internal/task", "internal/verb", "internal/webhook"},
	"internal/gateway/callinfo": {"api/pawl/v1", "internal/audit/trail", "internal/auth", "internal/broker", "internal/contract",
		"internal/gateway/apiproto", "internal/gateway/listen", "internal/gateway/receive", "internal/task", "internal/verb"},
	"internal/gateway/apiproto": {"api/pawl/v1", "internal/apijson", "internal/broker", "internal/contract",
		"internal/system/queues", "internal/task", "internal/verb"},
	"internal/gateway/fanout": {"api/pawl/v1", "internal/broker", "internal/engine/lanes", "internal/gateway/callinfo",
		"internal/gateway/apiproto", "internal/parallel", "internal/system/auditlog", "internal/system/queues", "internal/task",
		"internal/verb"},
	"internal/gateway/listen": {"internal/auth", "internal/certs", "internal/contract", "internal/grpcpool", "internal/humanize",
		"internal/task"},
	"internal/gateway/receive": {"internal/admission", "internal/contract", "internal/gateway/listen", "internal/humanize",
		"internal/rest", "internal/task"},
	"internal/gateway/send": {"api/pawl/v1", "internal/admission", "internal/contract", "internal/gateway/callinfo",
		"internal/gateway/listen", "internal/grpcpool", "internal/task"},
	"internal/gateway/statistics": {"api/keda", "api/pawl/v1", "internal/broker", "internal/cluster", "internal/contract",
		"internal/gateway/callinfo", "internal/gateway/apiproto", "internal/gateway/fanout", "internal/humanize",
		"internal/parallel", "internal/stats", "internal/system/webhooks", "internal/task", "internal/verb"},
	"internal/gateway/tasktrace": {"api/pawl/v1", "internal/broker", "internal/contract", "internal/gateway/callinfo",
		"internal/registry", "internal/task"},
	"internal/gateway/watch": {"api/pawl/v1", "internal/admission", "internal/events",
		"internal/gateway/callinfo", "internal/gateway/apiproto", "internal/humanize", "internal/parallel",
		"internal/task"},
	"internal/gateway/watch/watchtest": {"internal/events", "internal/task"},
	"internal/system/systemtest":       {"internal/audit", "internal/store", "internal/system", "internal/task"},
	"internal/router/claim":            {"internal/broker", "internal/router/forward", "internal/task", "internal/verb"},
}

// onlyIn lists libraries that only some packages may import.
var onlyIn = map[string][]string{
	"go.etcd.io/raft/v3": {"internal/node", "internal/raftlog", "internal/shard", "internal/transport"},
	"github.com/cockroachdb/pebble/v2": {"internal/node", "internal/node/datadir", "internal/ondisk", "internal/raftlog",
		"internal/store", "internal/system/systemtest", "internal/wal"},
	"github.com/go-sql-driver/mysql":     {"cmd/internal/relay", "internal/testdb"},
	"github.com/jackc/pgx/v5":            {"cmd/internal/relay", "internal/testdb", "outbox/pgxoutbox"},
	"modernc.org/sqlite":                 {"cmd/internal/relay"},
	"github.com/prometheus":              {"cmd/internal/relay", "internal/metrics"},
	"github.com/netresearch/go-cron":     {"internal/cron"},
	"go.opentelemetry.io/otel/sdk":       {"cmd/internal/tracing"}, // elsewhere only the API: users bring the exporters
	"go.opentelemetry.io/otel/exporters": {"cmd/internal/tracing"},
	"google.golang.org/grpc": {"", "admin", "api/keda", "api/pawl/v1", "embedded", "internal/client", "internal/client/convert",
		"internal/client/encrypt", "internal/client/route", "internal/client/rpc", "internal/client/telemetry",
		"internal/client/work", "internal/contract", "internal/gateway", "internal/gateway/access",
		"internal/gateway/administration", "internal/gateway/callinfo", "internal/gateway/listen", "internal/gateway/receive",
		"internal/gateway/send", "internal/gateway/statistics", "internal/gateway/watch", "internal/grpcpool", "internal/rest",
		"internal/transport", "pawltest"},
}

// walk calls fn for every Go file of this module and of those in tools/.
func walk(t *testing.T, fn func(path string)) {
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "build" ||
			d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, ".go") {
			fn(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sourceFiles calls fn for every Go file of the product that is not a test, parsed up to its imports.
func sourceFiles(t *testing.T, fn func(pkg, path string, f *ast.File)) {
	walk(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.ToSlash(path), "../tools/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		pkg, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if pkg = filepath.ToSlash(pkg); pkg == "." {
			pkg = ""
		}
		fn(pkg, path, f)
	})
}

func TestImports(t *testing.T) {
	imports := map[[2]string]bool{}
	sourceFiles(t, func(pkg, path string, f *ast.File) {
		entry := pkg
		if strings.HasPrefix(pkg, "examples/") {
			entry = "examples"
		}
		allowed, known := mayImport[entry]
		if !known {
			t.Errorf("%s: package %q is not in the table", path, pkg)
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if ours, ok := strings.CutPrefix(name, module); ok {
				ours = strings.TrimPrefix(ours, "/")
				if imports[[2]string{entry, ours}] = true; !slices.Contains(allowed, ours) {
					t.Errorf("%s imports %s, which is not in the table", path, name)
				}
			}
			for library, where := range onlyIn {
				if (name == library || strings.HasPrefix(name, library+"/")) && !slices.Contains(where, pkg) {
					t.Errorf("%s imports %s, which only %q may import", path, name, where)
				}
			}
		}
	})
	for pkg, allowed := range mayImport {
		for _, name := range allowed {
			if !imports[[2]string{pkg, name}] {
				t.Errorf("package %q no longer imports %q: remove it from the table", pkg, name)
			}
		}
	}
}

// TestTreeOfTheHouse checks that the tree in docs/architecture.md names every package, and none that is gone.
func TestTreeOfTheHouse(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for pkg := range mayImport {
		if room, ok := strings.CutPrefix(pkg, "internal/"); ok && !strings.Contains(room, "/") {
			want = append(want, room)
		}
	}
	_, tree, _ := strings.Cut(string(page), "\n  internal/\n")
	for line := range strings.Lines(tree) {
		room, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		room, _, _ = strings.Cut(room, "/")
		got = append(got, room)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the tree in docs/architecture.md has %q, want %q", got, want)
	}
}

// TestDrawing checks the drawing of docs/architecture.md against the table: its packages exist, and an arrow leads from a package
// to one that it may import, directly or through others. Dashed arrows go through an interface or over the network.
func TestDrawing(t *testing.T) {
	dot, err := os.ReadFile("../docs/architecture.dot")
	if err != nil {
		t.Fatal(err)
	}
	pkgs := map[string]string{} // by their names in the drawing
	arrows := 0
	for line := range strings.Lines(string(dot)) {
		line = strings.TrimSpace(line)
		name, rest, _ := strings.Cut(line, " ")
		if label, ok := strings.CutPrefix(rest, `[label="`); ok {
			pkg, _, _ := strings.Cut(label, `\n`)
			pkg = strings.TrimSuffix(pkg, "/…")
			switch pkg {
			case "pawl":
				pkg = ""
			case "cmd/pawl", "admin", "outbox", "internal/client":
			default:
				pkg = "internal/" + pkg
			}
			if _, known := mayImport[pkg]; !known {
				t.Errorf("%s: package %q does not exist", line, pkg)
			}
			pkgs[name] = pkg
		}
		if to, ok := strings.CutPrefix(rest, "-> "); ok && !strings.Contains(to, "style=dashed") {
			to, _, _ = strings.Cut(to, " ")
			arrows++
			if !reaches(pkgs[name], pkgs[to]) {
				t.Errorf("%s: package %q may not import %q", line, pkgs[name], pkgs[to])
			}
		}
	}
	if len(pkgs) < 15 || arrows < 15 {
		t.Errorf("the drawing has only %d packages and %d arrows", len(pkgs), arrows)
	}
}

// reaches reports whether a package may import another, directly or through its imports.
func reaches(from, to string) bool {
	seen := map[string]bool{from: true}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		for _, p := range mayImport[next[0]] {
			if p == to {
				return true
			}
			if !seen[p] {
				seen[p] = true
				next = append(next, p)
			}
		}
	}
	return false
}

func TestPackageComments(t *testing.T) {
	comments := map[string]string{}
	sourceFiles(t, func(pkg, _ string, f *ast.File) {
		comments[pkg] += f.Doc.Text()
	})
	for pkg, text := range comments {
		if strings.HasPrefix(pkg, "api/") || strings.HasPrefix(pkg, "examples") {
			continue
		}
		if len(strings.Fields(text)) < 15 {
			t.Errorf("the comment of package %q is too short: %q", pkg, text)
		}
		if lower := strings.ToLower(text); strings.HasPrefix(pkg, "internal/") && !strings.Contains(lower, "know") {
			t.Errorf("the comment of package %q does not say what it does not know: %q", pkg, text)
		}
	}
}

func TestNoFileIsTooLong(t *testing.T) {
	const most = 700
	sourceFiles(t, func(_, path string, _ *ast.File) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		generated := strings.HasPrefix(string(b), "// Code generated")
		if lines := strings.Count(string(b), "\n"); lines > most && !generated {
			t.Errorf("%s has %d lines, more than %d: split it", path, lines, most)
		}
	})
}

// maxWidth is the width of a line in characters.
const maxWidth = 140

// TestLinesAreNotTooWide: "make fmt" breaks lines that are. Texts of several lines are data.
func TestLinesAreNotTooWide(t *testing.T) {
	wide := 0
	walk(t, func(path string) {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(src), "// Code generated") {
			return
		}
		data := dataLines(src)
		for i, line := range strings.Split(string(src), "\n") {
			if n := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); n > maxWidth && !data[i+1] { // a tab is 4 wide
				if wide++; wide <= 20 {
					t.Errorf("%s:%d has %d columns, more than %d: run make fmt", path, i+1, n, maxWidth)
				}
			}
		}
	})
	if wide > 20 {
		t.Errorf("and %d more", wide-20)
	}
}

// dataLines returns the lines that are a part of a text of several lines.
func dataLines(src []byte) map[int]bool {
	data := map[int]bool{}
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return data
		}
		if n := strings.Count(text, "\n"); tok == token.STRING && n > 0 {
			for i := range n + 1 {
				data[file.Line(pos)+i] = true
			}
		}
	}
}

// mostLines bounds the packages of internal/ without tests, and mostMethods the methods of a type, so that each can be read by itself.
const mostLines, mostMethods = 5000, 40

// mostLinesIn has stricter bounds.
var mostLinesIn = map[string]int{"internal/engine": 4000, "internal/cluster": 4000}

// TestPackagesAreSmall checks these bounds.
func TestPackagesAreSmall(t *testing.T) {
	lines, methods := map[string]int{}, map[string]int{}
	sourceFiles(t, func(pkg, path string, _ *ast.File) {
		if !strings.HasPrefix(pkg, "internal/") {
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines[pkg] += strings.Count(string(b), "\n")
		f, err := parser.ParseFile(token.NewFileSet(), path, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[pkg+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	})
	for _, pkg := range []string{"internal/engine", "internal/cluster"} {
		if lines[pkg] < 1000 {
			t.Errorf("package %q has only %d lines: were they counted?", pkg, lines[pkg])
		}
	}
	for pkg, n := range lines {
		if most := cmp.Or(mostLinesIn[pkg], mostLines); n > most {
			t.Errorf("package %q has %d lines, more than %d", pkg, n, most)
		}
	}
	for typ, n := range methods {
		if n > mostMethods {
			t.Errorf("type %s has %d methods, more than %d: it may be two", typ, n, mostMethods)
		}
	}
}

// receiver returns the name of a method's receiver type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
