package gateway

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/rest"
)

var update = flag.Bool("update", false, "write the table of docs/access.md anew")

// Every call must state its access rules, and the tables must contain nothing else.
func TestAccessTable(t *testing.T) {
	g := newGateway(newFake())
	rpcs := map[string]bool{}
	for service, info := range g.grpc.GetServiceInfo() {
		ours, is := strings.CutPrefix("/"+service, access.APIPackage)
		if !is {
			n := access.NeedOfRPC("/" + service + "/Any")
			if n.Reach == 0 {
				t.Errorf("service %s has no row in publicServices or foreignServices", service)
			}
			if slices.ContainsFunc(info.Methods, isStream) && n.Reach != access.Public && !n.Lasts {
				t.Errorf("service %s has streams, so its row must set Lasts", service)
			}
			continue
		}
		for _, m := range info.Methods {
			name := ours + "/" + m.Name
			rpcs[name] = true
			n := access.RPCNeeds()[name]
			if n.Reach == 0 {
				t.Errorf("rpc %s has no scope in its proto file, which says who may call it", name)
			}
			if isStream(m) && !n.Lasts {
				t.Errorf("rpc %s is a stream, so its row must set Lasts", name)
			}
			if n.Reach == access.OfCluster && n.Roles == 0 || n.Reach == access.Public {
				t.Errorf("rpc %s is allowed with any token, or without one", name)
			}
		}
	}
	for _, service := range access.PublicServices {
		if _, served := g.grpc.GetServiceInfo()[service]; !served {
			t.Errorf("service %s is listed as public, but not served", service)
		}
	}
	for name := range access.RPCNeeds() {
		if !rpcs[name] {
			t.Errorf("a proto file describes rpc %s, which no server has", name)
		}
	}
	routes := map[string]bool{}
	routes[(&rest.Route{}).String()] = true
	for _, r := range rest.Routes() {
		routes[r.String()] = true
		if access.NeedOfRoute(r).Reach == 0 {
			t.Errorf("route %s has rpc %q, which does not exist, and has no row in ownRoutes or publicRoutes (access/table.go)", r, r.RPC)
		}
	}
	if access.NeedOfRoute(&rest.Route{Method: "GET", Path: "/metrics"}).Lasts {
		t.Error("GET /metrics returns immediately, but its row sets Lasts")
	}
	for _, key := range slices.Concat(slices.Collect(maps.Keys(access.OwnRoutes)), access.PublicRoutes) {
		if !routes[key] {
			t.Errorf("the table has a row for %s, which is not a route", key)
		}
	}
	if !t.Failed() {
		compareTable(t)
	}
}

func isStream(m grpc.MethodInfo) bool { return m.IsClientStream || m.IsServerStream }

const (
	accessDoc  = "../../docs/access.md"
	tableBegin = "<!-- table: written by go test ./internal/gateway -run TestAccessTable -update -->\n"
	tableEnd   = "<!-- end of table -->"
)

// compareTable compares docs/access.md with the code.
func compareTable(t *testing.T) {
	b, err := os.ReadFile(accessDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(b), tableBegin)
	said, tail, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", accessDoc)
	}
	want := accessTable()
	switch {
	case said == want:
	case *update:
		if err := os.WriteFile(accessDoc, []byte(head+tableBegin+want+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in %s does not match access/table.go and the proto files: run go test ./internal/gateway -run "+
			"TestAccessTable -update", accessDoc)
	}
}

var reachWords = map[access.Reach]string{access.Anyone: "nothing", access.AnyoneAsking: "nothing", access.OfClaims: "queues",
	access.OfQueues: "queues", access.OfNamespace: "the namespace", access.OfCluster: "the cluster"}

// accessTable returns the table, with a line for each rpc.
func accessTable() string {
	byRPC := map[string][]string{}
	for _, r := range rest.Routes() {
		if r.RPC != "" {
			byRPC[r.RPC] = append(byRPC[r.RPC], "`"+r.String()+"`")
		}
	}
	var b strings.Builder
	b.WriteString("| gRPC | REST | about |")
	for _, role := range auth.RoleNames {
		b.WriteString(" " + role + " |")
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(auth.RoleNames)) + "\n")
	needs := maps.Clone(access.RPCNeeds())
	maps.Copy(needs, access.ForeignServices)
	for route, n := range access.OwnRoutes {
		needs[""], byRPC[""] = n, append(byRPC[""], "`"+route+"`")
	}
	for _, rpc := range slices.Sorted(maps.Keys(needs)) {
		n := needs[rpc]
		slices.Sort(byRPC[rpc])
		fmt.Fprintf(&b, "| %s | %s | %s |", rpc, strings.Join(byRPC[rpc], "<br>"), reachWords[n.Reach])
		for i := range auth.RoleNames {
			yes := " "
			if n.Roles == 0 || auth.Roles(1<<i).HasAny(n.Roles) {
				yes = " yes "
			}
			b.WriteString(yes + "|")
		}
		b.WriteString("\n")
	}
	return b.String()
}
