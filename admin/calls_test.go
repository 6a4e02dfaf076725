package admin_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

var update = flag.Bool("update", false, "write testdata anew")

// streams are the streaming calls, which have their own tests.
var streams = []string{"Events", "Backup"}

// special has arguments of calls at and beyond their limits, by group and name. Arguments that are left out are zero.
var special = map[string][][]any{
	"Access.CreateToken":       {{admin.TokenSpec{Name: "ci", Life: admin.NeverExpires}}},
	"Access.RotateToken":       {{admin.TokenName{Name: "ci"}, admin.Rotation{Life: admin.NeverExpires, Overlap: new(time.Duration(0))}}},
	"Cluster.AddShards":        {{1 << 40}},
	"DeadLetters.List":         {{admin.Filter{States: []pawltype.State{"asleep"}}}},
	"DeadLetters.ListPoisoned": {{admin.Filter{States: []pawltype.State{"asleep"}}}},
	"Operations.Preview": {
		{admin.OperationSpec{Filter: admin.AllTasks()}},
		{admin.OperationSpec{Filter: &admin.Filter{}}},
		{admin.OperationSpec{Filter: admin.AllTasks(), Action: "sleep"}},
		{admin.OperationSpec{Filter: admin.AllTasks(), Priority: "urgent"}},
		{admin.OperationSpec{Filter: &admin.Filter{States: []pawltype.State{"asleep"}}}},
	},
	"Queues.ListPage":     {{admin.QueueFilter{Having: "nothing"}}},
	"Queues.Put":          {{"mail", admin.QueueSettings{KeyOrder: "loose"}}},
	"Queues.PutIfVersion": {{"mail", int64(7), admin.QueueSettings{KeyOrder: "loose"}}},
	"Queues.Spread":       {{"mail", admin.SpreadOptions{Shards: []int{-1, 0, 1, math.MaxInt}}}},
	"Schedules.Preview": {
		// refused by the server
		{admin.ScheduleSpec{Task: pawl.RawTask{Type: "ping"}, Options: []pawl.Option{pawl.In(time.Second), pawl.IdempotencyKey("k"),
			pawl.RequestID("r")}}},
		{admin.ScheduleSpec{Task: pawl.RawTask{Type: "ping"}}},
		{admin.ScheduleSpec{Task: pawl.RawTask{}}},
		{admin.ScheduleSpec{Task: pawl.RawTask{Type: "ping"}, Missed: "later"}},
		{admin.ScheduleSpec{Task: pawl.RawTask{Type: "ping"}, Overlap: "queue"}},
		{admin.ScheduleSpec{Task: pawl.RawTask{Type: "ping"}, Options: []pawl.Option{pawl.Priority("urgent")}}},
	},
	"Tasks.List":     {{admin.Filter{States: []pawltype.State{""}}}},
	"Tasks.Update":   {{"t1", admin.TaskUpdate{Payload: math.NaN()}}, {"t1", admin.TaskUpdate{Priority: "urgent"}}},
	"Types.ListPage": {{admin.TypeFilter{Order: "least"}}},
}

// TestCalls makes every call of the package: with all arguments filled in, with zero arguments, and with those of special. It records the
// request and the result of the call, and compares them with the group's file in testdata:
//
//	>       the request
//	<       the result of the call for a response in which each field is filled in
//	hollow  the result for a response in which each part exists, but is empty
//	empty   the result for an empty response
//	unread  fields of the response that do not affect the result
//	error   the error if the server is unavailable, and how often it was called, or the error of a call that is refused before it is sent
func TestCalls(t *testing.T) {
	var files []string
	_, operator := start(t)
	for name := range groups(operator) {
		file := filepath.Join("testdata", strings.ToLower(name)+".txt")
		files = append(files, file)
		var got string
		synctest.Test(t, func(t *testing.T) { got = tell(t, name) })
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		differ(t, file, got, string(want))
	}
	slices.Sort(files)
	if there, err := filepath.Glob("testdata/*"); err != nil || !slices.Equal(there, files) {
		t.Errorf("testdata has the files %v, %v, want %v", there, err, files)
	}
}

// differ reports the first line that differs, and the call to which it belongs.
func differ(t *testing.T, file, got, want string) {
	gots, wants, about := strings.Split(got, "\n"), strings.Split(want, "\n"), ""
	for i := range min(len(gots), len(wants)) {
		if gots[i] != wants[i] {
			t.Errorf("%s:%d: %s\n got %s\nwant %s\n(go test -update rewrites the file)", file, i+1, about, gots[i], wants[i])
			return
		}
		if !strings.HasPrefix(gots[i], " ") {
			about = gots[i]
		}
	}
	if len(gots) != len(wants) {
		t.Errorf("%s has %d lines, want %d", file, len(gots), len(wants))
	}
}

// groups returns the groups of calls by name. Calls that belong to no group are under Client.
func groups(operator admin.Client) map[string]reflect.Value {
	all := reflect.ValueOf(operator)
	found := map[string]reflect.Value{"Client": all}
	for i := range all.NumMethod() {
		if m := all.Method(i); m.Type().NumIn() == 0 {
			found[all.Type().Method(i).Name] = m.Call(nil)[0]
		}
	}
	return found
}

// teller makes the calls of a group and records what they do.
type teller struct {
	t      *testing.T
	server *server
	name   string // of the call
	call   reflect.Value
	args   []reflect.Value
	print  printer
	out    strings.Builder
}

// tell records what the calls of a group do.
func tell(t *testing.T, group string) string {
	w := &teller{t: t, print: printer{}}
	server, operator := start(t, pawl.DialOptions{RetryFor: 1}) // used up by one retry
	w.server = server
	of := groups(operator.WithActor("lena").WithReason("größer"))[group]
	for i := range of.NumMethod() {
		name, call := of.Type().Method(i).Name, of.Method(i)
		if call.Type().NumIn() == 0 || strings.HasPrefix(name, "With") || slices.Contains(streams, name) {
			continue
		}
		var something, nothing []reflect.Value
		for i := 1; i < call.Type().NumIn(); i++ {
			arg := reflect.New(call.Type().In(i)).Elem()
			nothing = append(nothing, reflect.Zero(arg.Type()))
			filler{}.fill(arg, string(rune('a'-1+i)), i)
			something = append(something, arg)
		}
		w.name, w.call = group+"."+name, call
		if w.asks(something) {
			w.answers()
		}
		if len(nothing) > 0 {
			w.asks(nothing)
		}
		for _, args := range special[w.name] {
			given := slices.Clone(nothing)
			for i, arg := range args {
				given[i] = reflect.ValueOf(arg)
			}
			w.asks(given)
		}
	}
	return w.out.String()
}

func (w *teller) line(what, text string) {
	fmt.Fprintln(&w.out, indent(what+" "+text))
}

var newID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// asks records the request that is sent for the arguments, and the result of the call while the server is unavailable.
// It reports whether a request was sent.
func (w *teller) asks(args []reflect.Value) bool {
	var texts []string
	for _, arg := range args {
		texts = append(texts, w.print.text(arg, w.name))
	}
	if w.out.Len() > 0 {
		fmt.Fprintln(&w.out)
	}
	fmt.Fprintln(&w.out, lay(w.name+"(", texts, ")"))
	w.args, w.server.answer, w.server.err = args, something, nil
	_, err := w.complete()
	sent := w.server.taken()
	if len(sent) == 0 {
		w.line("error", err.Error())
		return false
	}
	if err != nil {
		w.t.Errorf("%s returned %v", w.name, err)
	}
	for _, c := range sent {
		w.line(">", c.method+newID.ReplaceAllString(w.print.text(reflect.ValueOf(c.req), w.name), "a UUID"))
		if !slices.Equal(c.actor, []string{"lena"}) || !slices.Equal(c.reason, []string{"größer"}) {
			w.t.Errorf("%s calls %s with the actor %q and the reason %q, want lena and größer", w.name, c.method, c.actor, c.reason)
		}
	}
	w.server.err = status.Error(codes.Unavailable, "away")
	got, err := w.result()
	sent = w.server.taken()
	for _, c := range sent {
		if !proto.Equal(c.req.(proto.Message), sent[0].req.(proto.Message)) {
			w.t.Errorf("%s retries the request %v as %v", w.name, sent[0].req, c.req)
		}
	}
	for _, v := range got {
		if !v.IsZero() {
			w.t.Errorf("%s returned the result %s together with the error %v", w.name, printer(nil).text(v, ""), err)
		}
	}
	w.line("error", fmt.Sprintf("%v; asked %s", err, [...]string{1: "once", 2: "twice"}[len(sent)]))
	return true
}

// complete is result without the error of an iterator whose list lacks something, as all lists here do.
func (w *teller) complete() ([]reflect.Value, error) {
	got, err := w.result()
	if err != nil && strings.Contains(err.Error(), "the list is incomplete: ") {
		err = nil
	}
	return got, err
}

// answers records the results of the call for various responses.
func (w *teller) answers() {
	if w.call.Type().NumOut() == 1 && w.call.Type().Out(0) == reflect.TypeFor[error]() {
		return // nothing
	}
	w.server.err = nil
	returns := func(answer func(reply any)) (values []any) {
		w.server.answer = answer
		result, err := w.complete()
		if err != nil {
			w.t.Errorf("%s returned %v", w.name, err)
		}
		for _, v := range result {
			values = append(values, v.Interface())
		}
		return values
	}
	text := func(values []any) string {
		var texts []string
		for _, v := range values {
			texts = append(texts, w.print.text(reflect.ValueOf(v), w.name))
		}
		return strings.Join(texts, ", ")
	}
	var message reflect.Value // the response
	whole := returns(func(reply any) {
		message = reflect.New(reflect.TypeOf(reply).Elem())
		something(message.Interface())
		reflect.ValueOf(reply).Elem().Set(message.Elem())
	})
	calls := len(w.server.taken())
	w.line("<", text(whole))
	w.line("hollow", text(returns(func(reply any) { fill(reply, hollow) })))
	w.line("empty", text(returns(nil)))
	var unread []string
	for _, p := range parts(message, "") {
		if n := len(unread); n > 0 && strings.HasPrefix(p.path, unread[n-1]+".") {
			continue
		}
		said := reflect.ValueOf(p.value.Interface())
		p.value.SetZero()
		if reflect.DeepEqual(returns(func(reply any) { reflect.ValueOf(reply).Elem().Set(message.Elem()) }), whole) &&
			len(w.server.taken()) == calls {
			unread = append(unread, p.path)
		}
		p.value.Set(said)
	}
	if len(unread) > 0 {
		w.line("unread", strings.Join(unread, ", "))
	}
}

// something fills in a response.
func something(reply any) { fill(reply, full) }

// result makes the call and returns its results, with all items if one is an iterator, and its error.
func (w *teller) result() (values []reflect.Value, err error) {
	w.server.taken()
	call := w.call.Call
	if w.call.Type().IsVariadic() {
		call = w.call.CallSlice
	}
	for _, v := range call(append([]reflect.Value{reflect.ValueOf(w.t.Context())}, w.args...)) {
		switch {
		case v.Kind() == reflect.Func:
			items := reflect.Zero(reflect.SliceOf(v.Type().In(0).In(0)))
			for item, failed := range v.Seq2() {
				if err, _ = failed.Interface().(error); err == nil {
					items = reflect.Append(items, item)
				}
			}
			values = append(values, items)
		case v.Type() == reflect.TypeFor[error]():
			err, _ = v.Interface().(error)
		default:
			values = append(values, v)
		}
	}
	return values, err
}
