package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/pawlq/pawl/cmd/internal/cli"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// serveLists answers each call with one empty item if it lists, and with whatever fill adds to the answer, until the test ends.
func serveLists(t *testing.T, fill func(page protoreflect.Message)) (addr string) {
	return serveFake(t, func(method string, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		page, err := newPage(protoreflect.FullName(strings.ReplaceAll(method[1:], "/", ".")))
		if err != nil {
			return err
		}
		fill(page)
		return stream.SendMsg(page.Interface())
	})
}

// newPage returns the response of a method, with one item if it lists.
func newPage(method protoreflect.FullName) (protoreflect.Message, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(method)
	if err != nil {
		return nil, err
	}
	answer, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	m := answer.New()
	items := m.Descriptor().Fields().ByName("items")
	if items == nil {
		return m, nil
	}
	item := m.Mutable(items).List().AppendMutable().Message()
	if task := item.Descriptor().Fields().ByName("task"); task != nil {
		item.Mutable(task)
	}
	return m, nil
}

// listsOf returns the command lines of all lists with pages.
func listsOf(cmd *cobra.Command) (lines []string) {
	for _, sub := range cmd.Commands() {
		lines = append(lines, listsOf(sub)...)
	}
	_, line, _ := strings.Cut(cmd.CommandPath(), " ")
	if cmd.Flags().Lookup("limit") == nil || cmd.Flags().Lookup("cursor") == nil || line == "events" { // events go on forever
		return lines
	}
	const id = " 0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77"
	return append(lines, line+map[string]string{"dlq ls": " --queue mail", "group members": id, "schedule history": " nightly"}[line])
}

// TestListsHintAtMoreRows: every table is followed by a hint on how to continue if there are more rows. Programs get
// the cursor in the list itself.
func TestListsHintAtMoreRows(t *testing.T) {
	lists := listsOf(newRoot(&app{&cli.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}))
	if len(lists) < 15 {
		t.Errorf("found only %d lists, want at least 15: %q", len(lists), lists)
	}
	var cursor string
	server := serveLists(t, func(page protoreflect.Message) {
		page.Set(page.Descriptor().Fields().ByName("next_cursor"), protoreflect.ValueOfString(cursor))
	})
	for _, list := range lists {
		for _, c := range []struct{ cursor, format, want string }{
			{"abc", "table", "there are more: use --limit, or --cursor abc\n"},
			{"", "table", ""},
			{"abc", "json", ""},
		} {
			cursor = c.cursor
			var out, said bytes.Buffer
			exit := run(append(strings.Fields(list), "--limit", "1", "-o", c.format, "--server", server), strings.NewReader(""), &out,
				&said)
			if exit != cli.ExitDone || said.String() != c.want {
				t.Errorf("pawl %s -o %s, next cursor %q: status %d, stderr %q, want %q", list, c.format, c.cursor, exit,
					said.String(), c.want)
			}
		}
	}
}

// TestListsNameWhatIsMissing: every list of something that several shards or nodes have names those that did not
// answer, once each, however many pages lack them. Programs get them in the list too, and a status that says so if
// items are missing with them.
func TestListsNameWhatIsMissing(t *testing.T) {
	pages, shards := 0, true
	server := serveLists(t, func(page protoreflect.Message) {
		if pages++; pages%2 == 1 {
			page.Set(page.Descriptor().Fields().ByName("next_cursor"), protoreflect.ValueOfString("abc"))
		}
		missing := page.Descriptor().Fields().ByName("missing")
		if missing == nil { // each item has its own
			page = page.Get(page.Descriptor().Fields().ByName("items")).List().Get(0).Message()
			missing = page.Descriptor().Fields().ByName("missing")
		}
		for _, m := range []*pawlv1.Missing{{Node: "n3", Reason: "away"}, {Shard: 2, Reason: "hangs"}}[(pages-1)%2:] {
			if m.GetNode() == "" && !shards {
				continue
			}
			page.Mutable(missing).List().Append(protoreflect.ValueOfMessage(m.ProtoReflect()))
		}
	})
	for _, list := range []string{"queue ls", "task ls", "dlq ls --queue mail", "group ls", "schedule ls", "type ls", "worker ls",
		"audit", "ns ls"} {
		for format, want := range map[string]string{"table": "",
			"json": `"missing":[{"shard":2,"reason":"hangs"},{"node":"n3","reason":"away"}]`} {
			var out, said bytes.Buffer
			exit := run(append(strings.Fields(list), "--limit", "2", "-o", format, "--server", server), strings.NewReader(""), &out, &said)
			if exit != cli.ExitRefused || said.String() != "missing here: shard 2 hangs\nmissing here: node n3 away\n" {
				t.Errorf("pawl %s -o %s: status %d, stderr %q", list, format, exit, said.String())
			}
			if format == "json" && list == "ns ls" { // each namespace has its own, as in REST
				want = `"missing":[{"node":"n3","reason":"away"},{"shard":2,"reason":"hangs"}]},{"missing":[{"shard":2,"reason":"hangs"}]}`
			}
			if got := strings.Join(strings.Fields(out.String()), ""); !strings.Contains(got, want) {
				t.Errorf("pawl %s -o %s lacks what is missing: %s", list, format, got)
			}
		}
	}
	shards = false
	for list, want := range map[string]int{"queue ls": cli.ExitDone, "worker ls": cli.ExitDone} {
		pages = 0
		var out, said bytes.Buffer
		exit := run(append(strings.Fields(list), "--limit", "2", "--server", server), strings.NewReader(""), &out, &said)
		if exit != want || said.String() != "missing here: node n3 away\n" {
			t.Errorf("pawl %s without a node: status %d, want %d, stderr %q", list, exit, want, said.String())
		}
	}
}

// TestNumbersNameWhatIsMissing: so does what is shown of one queue, or of all.
func TestNumbersNameWhatIsMissing(t *testing.T) {
	var lacks *pawlv1.Missing
	server := serveLists(t, func(answer protoreflect.Message) {
		for _, of := range []protoreflect.Name{"queue", "stats", "namespace"} {
			if part := answer.Descriptor().Fields().ByName(of); part != nil && part.Message() != nil {
				answer = answer.Mutable(part).Message()
			}
		}
		answer.Mutable(answer.Descriptor().Fields().ByName("missing")).List().Append(protoreflect.ValueOfMessage(lacks.ProtoReflect()))
	})
	for _, c := range []struct {
		lacks *pawlv1.Missing
		exit  int
		said  string
	}{
		{&pawlv1.Missing{Shard: 2, Reason: "hangs"}, cli.ExitRefused, "missing here: shard 2 hangs\n"},
		{&pawlv1.Missing{Node: "n3", Reason: "away"}, cli.ExitDone, "missing here: node n3 away\n"},
	} {
		lacks = c.lacks
		for _, line := range []string{"queue show mail", "queue explain mail", "stats", "stats mail", "dlq groups", "ns show team"} {
			var out, said bytes.Buffer
			exit := run(append(strings.Fields(line), "-o", "json", "--server", server), strings.NewReader(""), &out, &said)
			if exit != c.exit || said.String() != c.said || !strings.Contains(out.String(), c.lacks.GetReason()) {
				t.Errorf("pawl %s: status %d, stderr %q, want %d, %q; %s", line, exit, said.String(), c.exit, c.said, out.String())
			}
		}
	}
}

// Every list says what there is none of.
func TestEmptyListsSayWhatTheyLack(t *testing.T) {
	server := serveLists(t, func(page protoreflect.Message) {
		if items := page.Descriptor().Fields().ByName("items"); items != nil {
			page.Clear(items)
		}
	})
	for _, list := range listsOf(newRoot(&app{&cli.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}})) {
		var out, said bytes.Buffer
		exit := run(append(strings.Fields(list), "--server", server), strings.NewReader(""), &out, &said)
		if exit != cli.ExitDone || out.Len() > 0 || !regexp.MustCompile(`^no [a-z ]+s\n$`).MatchString(said.String()) {
			t.Errorf("pawl %s: status %d, %q, stderr %q, want what there is none of", list, exit, out.String(), said.String())
		}
	}
}

// A node that is cut off from its cluster answers for itself only: of several addresses, the others are asked, too.
func TestOtherAddressesAreAsked(t *testing.T) {
	cut := serveLists(t, func(page protoreflect.Message) {
		switch m := page.Interface().(type) {
		case *pawlv1.GetClusterResponse:
			m.SeenBy, m.Node = "n3", "n3"
		case *pawlv1.ListTasksResponse:
			m.Missing = []*pawlv1.Missing{{Shard: 2, Reason: "has no leader"}}
		}
	})
	whole := serveLists(t, func(page protoreflect.Message) {
		if m, ok := page.Interface().(*pawlv1.GetClusterResponse); ok {
			m.Node = "n1"
		}
	})
	for _, c := range []struct {
		list, server string
		exit         int
		says, notes  string
	}{
		{"cluster status", cut, cli.ExitRefused, "node n3 answered", ""},
		{"cluster status", whole, cli.ExitDone, "node n1 answered", ""},
		{"cluster status", cut + "," + whole, cli.ExitDone, "node n1 answered", ""},
		{"cluster status", whole + "," + cut, cli.ExitDone, "node n1 answered", ""},
		{"cluster status", cut + "," + cut, cli.ExitRefused, "node n3 answered", ""},
		{"task ls", cut, cli.ExitRefused, "ID ", "missing here: shard 2 has no leader\n"},
		{"task ls", cut + "," + whole, cli.ExitDone, "ID ", ""},
	} {
		for range 8 { // the client takes the addresses in any order
			var out, notes bytes.Buffer
			exit := run(append(strings.Fields(c.list), "--server", c.server), strings.NewReader(""), &out, &notes)
			if exit != c.exit || !strings.Contains(out.String(), c.says) || notes.String() != c.notes {
				t.Fatalf("pawl %s of %s: status %d, %q, stderr %q, want %d, %q and %q",
					c.list, c.server, exit, out.String(), notes.String(), c.exit, c.says, c.notes)
			}
		}
	}
}

// While a shard is missing, the beginning of an id may be that of another task, too. A whole id is one task's.
func TestBeginningsOfIDsNeedAllShards(t *testing.T) {
	addr := serveLists(t, func(answer protoreflect.Message) {
		switch m := answer.Interface().(type) {
		case *pawlv1.ListTasksResponse:
			m.Items[0].TaskId = anID
			m.Missing = []*pawlv1.Missing{{Shard: 2, Reason: "hangs"}}
		case *pawlv1.GetTaskResponse:
			m.Task = &pawlv1.Task{TaskId: anID}
		}
	})
	const refusal = "pawl: task \"0198c2f4\": a part of the cluster does not answer: give the whole id\n"
	for _, verb := range []string{"task show", "task explain", "task wait", "task edit --priority high", "task cancel"} {
		var out, said bytes.Buffer
		exit := run(append(strings.Fields(verb), anID[:8], "--server", addr), strings.NewReader(""), &out, &said)
		if exit != cli.ExitRefused || said.String() != refusal {
			t.Errorf("pawl %s with the beginning of an id: status %d, %q, %q, want %q", verb, exit, &out, &said, refusal)
		}
	}
	if exit := run([]string{"task", "show", anID, "--server", addr}, strings.NewReader(""), io.Discard, io.Discard); exit != cli.ExitDone {
		t.Errorf("pawl task show with a whole id: status %d", exit)
	}
}
