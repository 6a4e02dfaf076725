package cli

import (
	"encoding/json"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/pawltype"
)

// responses are what the API has returned to a command. For programs a command prints them as they came, with the fields of REST.
type responses struct {
	mu     sync.Mutex
	method string          // of the last call
	all    []proto.Message // to the last call, after those to the same one before it if it has items
}

// record has a client's responses noted.
func (a *App) record(c *pawl.Client) { client.Of(c).Record(a.note) }

// note keeps a response.
func (a *App) note(method string, response proto.Message) {
	a.responses.mu.Lock()
	defer a.responses.mu.Unlock()
	fields := response.ProtoReflect().Descriptor().Fields()
	if method != a.responses.method || a.ForPeople() || fields.ByName("items") == nil && fields.ByName("results") == nil {
		a.responses.all = nil
	}
	a.responses.method, a.responses.all = method, append(a.responses.all, response)
}

// Forget forgets all responses: what follows is about no call.
func (a *App) Forget() {
	a.responses.mu.Lock()
	defer a.responses.mu.Unlock()
	a.responses.method, a.responses.all = "", []proto.Message{&pawlv1.ListTasksResponse{}}
}

// last returns the method of the last call, and its response; nil: none was made.
func (a *App) last() (method string, response proto.Message) {
	a.responses.mu.Lock()
	defer a.responses.mu.Unlock()
	if n := len(a.responses.all); n > 0 {
		response = a.responses.all[n-1]
	}
	return a.responses.method, response
}

// Response returns the response to the last call.
func (a *App) Response() proto.Message {
	_, response := a.last()
	return response
}

// Responses returns the responses to the last call as one, with the items of all of them if it was repeated, and
// forgets them. It returns nil if there is none.
func (a *App) Responses() proto.Message {
	a.responses.mu.Lock()
	defer a.responses.mu.Unlock()
	all := a.responses.all
	a.responses.all = nil
	if len(all) == 0 {
		return nil
	}
	one := all[0].ProtoReflect().New().Interface()
	for _, response := range all {
		proto.Merge(one, response)
	}
	return one
}

// PrintAnswer prints the answer of the last call for programs, as REST returns it, or calls table for people.
func (a *App) PrintAnswer(table func(w io.Writer)) error {
	method, answer := a.last()
	if call := contract.Calls()[method]; call != nil && len(call.GetRest()) > 0 {
		answer = contract.Answer(call.GetRest()[0], answer)
	}
	return a.PrintMessage(answer, table)
}

// PrintMessage prints a message of the API for programs, or calls table for people.
func (a *App) PrintMessage(m proto.Message, table func(w io.Writer)) error {
	if a.ForPeople() {
		return a.Print(nil, table)
	}
	return a.Print(json.RawMessage(apijson.Marshal(m)), table)
}

// PrintPages prints a list that was read in pages.
func (a *App) PrintPages(nextCursor string, missing []pawltype.Missing, table func(w io.Writer)) error {
	if a.ForPeople() {
		return a.Print(nil, table)
	}
	all := a.Responses()
	m := all.ProtoReflect()
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("next_cursor"), protoreflect.ValueOfString(nextCursor))
	if f := fields.ByName("missing"); f != nil {
		m.Clear(f)
		for _, s := range missing {
			lacks := &pawlv1.Missing{Node: s.Node, Shard: s.Shard, Reason: s.Reason}
			m.Mutable(f).List().Append(protoreflect.ValueOfMessage(lacks.ProtoReflect()))
		}
	}
	return a.PrintMessage(all, table)
}
