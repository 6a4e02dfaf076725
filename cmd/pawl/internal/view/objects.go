package view

import (
	"cmp"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"
)

// REST API objects that users write in a flag or a file. They are decoded as REST decodes them.

// ReadObject decodes a JSON object, given directly or as @FILE.
func ReadObject(flag, arg string, to proto.Message) error {
	data := []byte(arg)
	if name, isFile := strings.CutPrefix(arg, "@"); isFile {
		var err error
		if data, err = cli.ReadFile(name, MaxPayload); err != nil {
			return err
		}
	}
	if err := apijson.Decode(strings.TrimLeft(flag, "-"), data, to); err != nil {
		return cli.Usage("%s %s: %w", flag, text.Short(arg, 60), err)
	}
	return nil
}

// Item returns a decoded task as an item of the SDK.
func Item(s *pawlv1.TaskSpec) pawl.Item {
	return pawl.Item{Args: spec.Made{TaskSpec: s}, Options: []pawl.Option{spec.Made{TaskSpec: s}}}
}

var (
	missedWords  = convert.Words[admin.Missed](pawlv1.Missed_name, "MISSED_")
	overlapWords = convert.Words[admin.Overlap](pawlv1.Overlap_name, "OVERLAP_")
)

// SpecOf returns a decoded schedule as the SDK takes it. Its owner is the file's, unless it has its own.
func SpecOf(s *pawlv1.ScheduleSpec, owner string) (out admin.ScheduleSpec, err error) {
	switch {
	case s.GetTask() == nil:
		return out, errors.New("task: is required")
	case s.GetEvery() != nil && s.GetEvery().AsDuration() == 0: // the SDK would take it for none
		return out, errors.New("every: 0s is not positive")
	}
	task := Item(s.GetTask())
	return admin.ScheduleSpec{Name: s.GetName(), Cron: s.GetCron(), Every: s.GetEvery().AsDuration(), TimeZone: s.GetTimeZone(),
		Jitter: s.GetJitter().AsDuration(), Missed: missedWords[int32(s.GetMissed())], Overlap: overlapWords[int32(s.GetOverlap())],
		Owner: cmp.Or(s.GetOwner(), owner), Task: task.Args, Options: task.Options}, nil
}

// Explicit returns value for an SDK option in which 0 means unset, and zero is how to say 0.
func Explicit[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}

// MaxPayload is more than any server accepts, so that the server's error names its limit, yet no larger input fills our memory.
const MaxPayload = 15 << 20
