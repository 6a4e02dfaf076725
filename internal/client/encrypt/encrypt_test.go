package encrypt

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Each bytes field in the API is one that a keyring encrypts, or is not part of a task's contents.
func TestKeyringCoversEveryField(t *testing.T) {
	notOfTasks := []string{"pawl.v1.BackupResponse.data"}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		d := m.Descriptor()
		if d.ParentFile().Package() != "pawl.v1" || holds(m.New().Interface()) {
			return true
		}
		for i := range d.Fields().Len() {
			if f := d.Fields().Get(i); f.Kind() == protoreflect.BytesKind && !slices.Contains(notOfTasks, string(f.FullName())) {
				t.Errorf("%s is neither encrypted nor listed as outside a task's contents", f.FullName())
			}
		}
		return true
	})
}
