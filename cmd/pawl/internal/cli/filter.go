package cli

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

// FilterHelp tells of the filter language.
const FilterHelp = `A filter is said by flags, or as in the web UI:
conditions such as queue:mail state:dead,poisoned error:"timed out" created_after:2h, which all must
match. The fields are queue, state, type, tag, key, worker, error, fingerprint, operation,
created_after (after), created_before (before) and q (payload); words without a field are looked for
in the payload, and payload.customer.id:42 (args.) finds a field of it. A time is an age (2h, 7d), a day (2026-01-31) or RFC 3339; without a zone it is UTC.`

// FilterFlags are the filter that REST, CLI and UI share, as flags.
type FilterFlags struct {
	admin.Filter
	states        []string
	after, before string
	language      string // what is said in the filter language
	withState     bool
}

// Add adds the flags of the filter, --state only if withState says so.
func (f *FilterFlags) Add(flags *pflag.FlagSet, withState bool) {
	f.withState = withState
	flags.StringVar(&f.Queue, "queue", "", "in this queue")
	flags.StringVar(&f.Type, "type", "", "of this type")
	flags.StringVar(&f.Tag, "tag", "", "with this tag")
	flags.StringVar(&f.Key, "key", "", "with this key")
	flags.StringVar(&f.Worker, "worker", "", "last held by this worker")
	flags.StringVar(&f.Error, "error", "", "whose last error contains this text")
	flags.StringVar(&f.Fingerprint, "fingerprint", "", "whose type and last error have this fingerprint, as pawl dlq groups shows it")
	flags.StringVar(&f.Operation, "operation", "", "last changed by this operation")
	flags.StringVar(&f.after, "created-after", "", "created after this time: an age such as 2h, a day such as 2026-01-31, or RFC 3339")
	flags.StringVar(&f.before, "created-before", "", "created before this time: an age such as 7d, a day such as 2026-01-31, or RFC 3339")
	flags.StringVar(&f.Text, "q", "", "whose payload contains this text")
	if withState {
		flags.StringSliceVar(&f.states, "state", nil, "only in these states: scheduled, ready, claimed, retrying, succeeded, discarded, dead, poisoned, cancelled")
	}
}

// Take takes a filter in the filter language, in one argument or several. One without any field is more likely a slip than a search.
func (f *FilterFlags) Take(args []string) error {
	if len(args) > 0 && !AreFilter(args) {
		return Usage("%q is no condition such as queue:mail; q:%[1]s looks for it in the payloads", strings.Join(args, " "))
	}
	f.language = strings.Join(args, " ")
	return nil
}

// AreFilter says whether arguments are a filter in the filter language, and not ids.
func AreFilter(args []string) bool {
	return slices.ContainsFunc(args, func(s string) bool { return strings.Contains(s, ":") })
}

// Read checks the flags and gives the filter, with what was said in the filter language.
func (f *FilterFlags) Read(now time.Time) (admin.Filter, error) {
	out := f.Filter
	var err error
	if out.CreatedAfter, err = ReadMoment("--created-after", f.after, now); err != nil {
		return out, err
	}
	if out.CreatedBefore, err = ReadMoment("--created-before", f.before, now); err != nil {
		return out, err
	}
	if len(f.states) > 0 {
		if out.States, err = ReadStates("--state", f.states); err != nil {
			return out, err
		}
	}
	return f.say(out, now)
}

// ReadStates reads names of states, one at least.
func ReadStates(flag string, names []string) ([]pawltype.State, error) {
	f, err := admin.FilterTerms{{Field: "state", Value: strings.Join(names, ",")}}.Filter(time.Time{})
	if err != nil {
		return nil, Usage("%s %s", flag, strings.TrimPrefix(filterError(err), "filter: "))
	}
	return f.States, nil
}

// say adds what was said in the filter language to what the flags say.
func (f *FilterFlags) say(flags admin.Filter, now time.Time) (admin.Filter, error) {
	said, err := admin.ParseFilterTerms(f.language)
	if err != nil {
		return flags, Usage("%s", filterError(err))
	}
	before, err := admin.ParseFilterTerms(flags.String())
	if err != nil {
		return flags, Usage("%s", filterError(err))
	}
	for _, t := range said {
		if t.Field == "state" && !f.withState {
			return flags, Usage("state: is not asked here: dead letters are dead, or poisoned with --poisoned")
		}
		for _, b := range before {
			if t.Field == b.Field {
				return flags, Usage("%s is given twice, by a flag and in the filter", t.Field)
			}
		}
	}
	all, err := append(before, said...).Filter(now)
	if err != nil {
		return flags, Usage("%s", filterError(err))
	}
	return all, nil
}

// filterError is what is wrong with a filter.
func filterError(err error) string {
	if e := (*pawltype.Error)(nil); errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// Given reports whether anything narrows the choice.
func (f *FilterFlags) Given() bool {
	return f.language != "" || len(f.states) > 0 || f.after != "" || f.before != "" || f.Filter.String() != ""
}

// ReadMoment reads a time, or an age that lies before now.
func ReadMoment(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	at, err := humanize.Past(s, now)
	if err != nil {
		return at, Usage("%s %v", flag, err)
	}
	return at, nil
}
