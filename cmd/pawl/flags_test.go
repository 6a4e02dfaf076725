package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	taskspec "github.com/pawlq/pawl/internal/client/spec"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// flagValues are the values of flags that are not numbers or periods.
var flagValues = map[string]string{
	"order": "3,2,1", "key-order": "strict", "rate": "50/s", "breaker": "on", "priority": "high", "at": "2030-01-31T12:00:00Z",
	"header": "a=b", "on-conflict": "replace", "unique-states": "scheduled,ready,claimed,retrying,dead", "then": `{"type":"b"}`,
}

// flagContext is what a flag needs beside it.
var flagContext = map[string]string{"burst": "--rate=70/s", "weight": "--for-key=k --max-running=1", "on-conflict": "--unique=u",
	"unique-states": "--unique=u", "breaker-failure-rate": "--breaker=on", "breaker-window": "--breaker=on",
	"breaker-min-attempts": "--breaker=on", "breaker-hold": "--breaker=on", "breaker-max-hold": "--breaker=on",
	"breaker-probes": "--breaker=on"}

// changedBy returns the paths of what a flag changes in the JSON of what read returns.
func changedBy(t *testing.T, name string, add func(*pflag.FlagSet), read func(*pflag.FlagSet) []byte) (paths []string) {
	t.Helper()
	var was, is map[string]any
	for _, given := range []bool{false, true} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		add(flags)
		line := strings.Fields(flagContext[name])
		if given {
			value := flagValues[name]
			switch kind := flags.Lookup(name).Value.Type(); {
			case value != "":
			case strings.HasPrefix(kind, "int"):
				value = "7"
			case strings.HasPrefix(kind, "float"):
				value = "1.5"
			case strings.HasPrefix(kind, "string"):
				value = "x"
			default:
				value = "77s"
			}
			line = append(line, "--"+name+"="+value)
		}
		if err := flags.Parse(line); err != nil {
			t.Fatalf("--%s: %v", name, err)
		}
		to := &was
		if given {
			to = &is
		}
		if err := json.Unmarshal(read(flags), to); err != nil {
			t.Fatal(err)
		}
	}
	before, after := leaves("", was, nil), leaves("", is, nil)
	for path, v := range after {
		if before[path] != v {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// leaves returns the values in a JSON document by their paths.
func leaves(path string, v any, all map[string]string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	object, ok := v.(map[string]any)
	if !ok {
		all[path] = fmt.Sprint(v)
	}
	for name, inner := range object {
		leaves(strings.ToLower(strings.TrimPrefix(path+"."+name, ".")), inner, all)
	}
	return all
}

// TestFlagsSetTheirFields: each flag changes the field that it is named for, and no other.
func TestFlagsSetTheirFields(t *testing.T) {
	settings := func(flags *pflag.FlagSet) []byte {
		t.Fatal("not set")
		return nil
	}
	addSettings := func(flags *pflag.FlagSet) {
		var s settingsFlags
		s.add(flags)
		settings = func(flags *pflag.FlagSet) []byte {
			q, err := s.over(flags, admin.QueueSettings{})
			if err != nil {
				t.Error(err)
			}
			text, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	spec := settings
	addSpec := func(flags *pflag.FlagSet) {
		var s specFlags
		s.add(flags)
		spec = func(flags *pflag.FlagSet) []byte {
			opts, err := s.options(flags)
			if err != nil {
				t.Error(err)
			}
			to, err := taskspec.Of(pawl.RawTask{Type: "a"}, opts)
			if err != nil {
				t.Error(err)
			}
			text, err := protojson.Marshal(to)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	for _, c := range []struct {
		command string
		add     func(*pflag.FlagSet)
		read    func(*pflag.FlagSet) []byte
		fields  map[string]string // of flags with other names; "": the flag only says how others count
	}{
		{"queue set", addSettings, func(f *pflag.FlagSet) []byte { return settings(f) }, map[string]string{
			"order": "weights.high weights.low weights.normal", "rate": "rate.limit rate.period", "burst": "rate.burst",
			"weight": "keys.k.weight", "no-limits": "", "for-key": "", "for-each-key": "", "defaults": "", "for-type": "", "breaker": "",
		}},
		{"enqueue", addSpec, func(f *pflag.FlagSet) []byte { return spec(f) }, map[string]string{
			"in": "delay", "at": "runat", "tag": "tags", "header": "headers.a", "unique": "unique.key", "group": "groupid",
			"content-type": "", "unique-content": "",
		}},
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		c.add(flags)
		flags.VisitAll(func(f *pflag.Flag) {
			want, other := c.fields[f.Name]
			if other && want == "" {
				return
			}
			got := changedBy(t, f.Name, c.add, c.read)
			if !other { // keep-dead is retention.dead
				words := strings.Split(f.Name, "-")
				want = strings.Join(words, "")
				if slices.Contains([]string{"keep", "retry", "breaker"}, words[0]) || words[0] == "unique" {
					want = map[string]string{"keep": "retention"}[words[0]] + "." + strings.Join(words[1:], "")
				}
				if len(got) == 1 && strings.HasSuffix("."+got[0], "."+strings.TrimPrefix(want, ".")) {
					return
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("pawl %s --%s changes %q, want %q", c.command, f.Name, got, want)
			}
		})
	}
}

// TestChangesAreConditional: a command that reads something and then changes it says which version it has read, so that the change of
// somebody else in between is not lost.
func TestChangesAreConditional(t *testing.T) {
	queue := &pawlv1.Queue{Queue: "mail", Version: 7, Settings: &pawlv1.QueueSettings{}}
	answers := map[string]proto.Message{
		"/pawl.v1.OperatorService/GetQueue": &pawlv1.GetQueueResponse{Queue: queue},
		"/pawl.v1.OperatorService/PutQueue": &pawlv1.PutQueueResponse{Queue: queue},
	}
	const schedule = "/pawl.v1.ScheduleService/PutSchedule"
	var sent []string
	addr := serveFake(t, func(method string, stream grpc.ServerStream) error {
		raw := &emptypb.Empty{}
		if err := stream.RecvMsg(raw); err != nil {
			return err
		}
		var request proto.Message = &pawlv1.PutQueueRequest{}
		if method == schedule {
			request = &pawlv1.PutScheduleRequest{}
		}
		if err := proto.Unmarshal(raw.ProtoReflect().GetUnknown(), request); err != nil {
			return err
		}
		switch r := request.(type) {
		case *pawlv1.PutScheduleRequest:
			name := r.GetSpec().GetName()
			sent = append(sent, fmt.Sprintf("%s dry run %t, create only %t, etag %q", name, r.GetDryRun(),
				r.GetCreateOnly(), r.GetIfEtag()))
			out := &pawlv1.PutScheduleResponse{Change: "updated", Schedule: &pawlv1.Schedule{Spec: r.GetSpec()}}
			if name == "old" {
				out.Before = &pawlv1.Schedule{Spec: r.GetSpec(), Etag: "e"}
			}
			return stream.SendMsg(out)
		case *pawlv1.PutQueueRequest:
			if strings.HasSuffix(method, "PutQueue") {
				sent = append(sent, fmt.Sprintf("%s version %d", r.GetQueue(), r.GetIfVersion()))
			}
		}
		return stream.SendMsg(answers[method])
	})
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	const text = "schedules:\n- {name: old, every: 1h, task: {type: a}}\n- {name: new, every: 1h, task: {type: a}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		want []string
	}{
		{"queue set mail --max-attempts 3", []string{"mail version 7"}},
		{"queue set mail --defaults", []string{"mail version 7"}},
		{"schedule apply -f " + file, []string{`old dry run true, create only false, etag ""`,
			`new dry run true, create only false, etag ""`, `old dry run false, create only false, etag "e"`,
			`new dry run false, create only true, etag ""`}},
	} {
		sent = nil
		status := run(append(strings.Fields(c.line), "--server", addr), strings.NewReader(""), io.Discard, io.Discard)
		if status != cli.ExitDone || !slices.Equal(sent, c.want) {
			t.Errorf("pawl %s: status %d, it sent %q, want %q", c.line, status, sent, c.want)
		}
	}
}
