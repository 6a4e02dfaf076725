package apijson

import (
	"bytes"
	"strings"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// Rows of an outbox, files and flags hold the bodies of requests as well. They are decoded here as bodies are, so that none of them
// accepts what REST refuses.

// Marshal returns a message as an object.
func Marshal(p proto.Message) []byte {
	var w Writer
	w.Message(p)
	return w.B
}

// Decode reads a document, which is one JSON object, into a message. what names the document in a refusal that is about all of it.
func Decode(what string, text []byte, to proto.Message) error {
	return decode(what, text, func(r *Reader, name string) error { return r.Field(to.ProtoReflect(), name) })
}

// MaxFileSchedules bounds the schedules of a file.
const MaxFileSchedules = 10_000

// DecodeSchedules reads a file of schedules: an object with their owner and a list of them.
func DecodeSchedules(text []byte) (owner string, all []*pawlv1.ScheduleSpec, err error) {
	err = decode("file", text, func(r *Reader, name string) (err error) {
		switch name {
		case "owner":
			if owner, err = r.str(name); err == nil && owner == "" {
				err = task.Invalid(name, "is empty: leave it out for none")
			}
			return err
		case "schedules":
			return r.items(name, func(i int) error {
				if i == MaxFileSchedules {
					return task.Invalid(name, "more than %d", MaxFileSchedules)
				}
				s := &pawlv1.ScheduleSpec{}
				all = append(all, s)
				return r.object(Of(s.ProtoReflect().Descriptor()), s.ProtoReflect(), contract.Item(name, i))
			})
		}
		return Unknown("", name)
	})
	if err == nil && len(all) == 0 {
		err = task.Invalid("schedules", "is required, with 1 to %d schedules", MaxFileSchedules)
	}
	return owner, all, err
}

func decode(what string, text []byte, field func(r *Reader, name string) error) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return task.Invalid(what, "is empty, want a JSON object")
	}
	err := Read(text, &Budget{Left: len(text) + contract.MemoryFor(len(text)) + contract.MaxExtra}, MaxListed, field)
	if e, ok := task.AsError(err); ok && e.Field == "body" {
		return task.Invalid(what, "%s", strings.TrimPrefix(e.Message, "body: "))
	}
	return err
}
