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

// answers are what the API has answered to a command. For programs a command prints an answer as it came, with the fields of REST.
type answers struct {
	mu     sync.Mutex
	last   proto.Message
	method string          // of the last call
	same   []proto.Message // if it was made several times in a row and answers with items: all answers
}

// note keeps an answer.
func (a *App) note(method string, answer proto.Message) {
	was := a.said()
	was.mu.Lock()
	defer was.mu.Unlock()
	fields := answer.ProtoReflect().Descriptor().Fields()
	if method != was.method || a.ForPeople() || fields.ByName("items") == nil && fields.ByName("results") == nil {
		was.same = nil
	}
	was.last, was.method, was.same = answer, method, append(was.same, answer)
}

// said returns the answers so far.
func (a *App) said() *answers {
	if a.answers == nil { // no call is made yet
		a.answers = &answers{}
	}
	return a.answers
}

// record has a client's answers noted.
func (a *App) record(c *pawl.Client) {
	a.said()
	client.Of(c.Conn()).Record(a.note)
}

// Forget forgets all answers: what follows is about no call.
func (a *App) Forget() {
	was := a.said()
	was.mu.Lock()
	defer was.mu.Unlock()
	was.last, was.method, was.same = &pawlv1.ListTasksResponse{}, "", nil
}

// Response returns the response of the last call.
func (a *App) Response() proto.Message {
	was := a.said()
	was.mu.Lock()
	defer was.mu.Unlock()
	return was.last
}

// Answer returns the answer of the last call as REST returns it.
func (a *App) Answer() proto.Message {
	was := a.said()
	was.mu.Lock()
	defer was.mu.Unlock()
	answer := was.last
	if call := contract.Calls()[was.method]; call != nil && len(call.GetRest()) > 0 {
		answer = contract.Answer(call.GetRest()[0], answer)
	}
	return answer
}

// Answers returns the answers of the last call as one: with the items of all of them if it was repeated. Otherwise the last counts.
// It returns nil if no call was answered.
func (a *App) Answers() proto.Message {
	was := a.said()
	was.mu.Lock()
	defer was.mu.Unlock()
	if was.last == nil {
		return nil
	}
	all := proto.Clone(was.last)
	proto.Reset(all)
	for _, answer := range was.same {
		proto.Merge(all, answer)
	}
	was.same = nil
	return all
}

// PrintAnswer prints the answer of the last call for programs, or calls table for people.
func (a *App) PrintAnswer(table func(w io.Writer)) error { return a.PrintMessage(a.Answer(), table) }

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
	all := a.Answers()
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
