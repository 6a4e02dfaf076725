package receive

import (
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/contract"
)

// texts are the fields of a message type that must not be empty if they are given, and those whose messages have such fields.
type texts struct {
	full  []protoreflect.FieldDescriptor
	inner []inner
}

type inner struct {
	field protoreflect.FieldDescriptor
	*texts
}

var textsByType sync.Map // full name → *texts

func textsOf(d protoreflect.MessageDescriptor) *texts {
	if t, ok := textsByType.Load(d.FullName()); ok {
		return t.(*texts)
	}
	t := &texts{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case f.Kind() == protoreflect.StringKind && f.HasPresence():
			t.full = append(t.full, f)
		// tasks are checked where they are converted: a bad one does not fail a batch
		case f.Message() != nil && !f.IsList() && !f.IsMap() && f.Message().Name() != "TaskSpec":
			if in := textsOf(f.Message()); len(in.full)+len(in.inner) > 0 {
				t.inner = append(t.inner, inner{f, in})
			}
		}
	}
	textsByType.Store(d.FullName(), t)
	return t
}

// check refuses a text that is given but empty.
func (t *texts) check(m protoreflect.Message) error {
	for _, f := range t.full {
		if m.Has(f) && m.Get(f).String() == "" {
			return contract.Empty(string(f.Name()))
		}
	}
	for _, in := range t.inner {
		if m.Has(in.field) {
			if err := in.check(m.Get(in.field).Message()); err != nil {
				return err
			}
		}
	}
	return nil
}
