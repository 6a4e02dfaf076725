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

// FilterHelp describes the filter language.
const FilterHelp = `Give a filter by flags, or as in the web UI:
conditions such as queue:mail state:dead,poisoned error:"timed out" created_after:2h, all of which must
match. The fields are queue, state, type, tag, key, worker, error, fingerprint, operation,
created_after (after), created_before (before) and q (payload). Words without a field are searched for
in the payload, and payload.customer.id:42 (or args.) matches a field of it. A time is an age (2h, 7d), a day (2026-01-31) or RFC 3339; without a zone it is UTC.`

// FilterFlags are the flags of the filter that REST, CLI and UI share.
type FilterFlags struct {
	admin.Filter
	states        []string
	after, before string
	language      string // a filter in the filter language
	withState     bool
}

// Add adds the flags of the filter; --state only if withState is set.
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
		flags.StringSliceVar(&f.states, "state", nil,
			"only in these states: scheduled, ready, claimed, retrying, succeeded, discarded, dead, "+
				"poisoned, cancelled")
	}
}

// Take parses arguments as a filter in the filter language. One without any field is rejected: it is more likely a slip than a search.
func (f *FilterFlags) Take(args []string) error {
	if len(args) > 0 && !AreFilter(args) {
		return Usage("%q is not a condition such as queue:mail; q:%[1]s searches for it in payloads", strings.Join(args, " "))
	}
	f.language = strings.Join(args, " ")
	return nil
}

// AreFilter reports whether arguments are a filter in the filter language rather than ids.
func AreFilter(args []string) bool {
	return slices.ContainsFunc(args, func(s string) bool { return strings.Contains(s, ":") })
}

// Read checks the flags and returns the filter, combined with the one in the filter language.
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
	return f.addTerms(out, now)
}

// ReadStates parses names of states, at least one.
func ReadStates(flag string, names []string) ([]pawltype.State, error) {
	f, err := admin.FilterTerms{{Field: "state", Value: strings.Join(names, ",")}}.Filter(time.Time{})
	if err != nil {
		return nil, Usage("%s %s", flag, strings.TrimPrefix(filterError(err), "filter: "))
	}
	return f.States, nil
}

// addTerms adds the filter in the filter language to that of the flags.
func (f *FilterFlags) addTerms(flags admin.Filter, now time.Time) (admin.Filter, error) {
	terms, err := admin.ParseFilterTerms(f.language)
	if err != nil {
		return flags, Usage("%s", filterError(err))
	}
	before, err := admin.ParseFilterTerms(flags.String())
	if err != nil {
		return flags, Usage("%s", filterError(err))
	}
	for _, t := range terms {
		if t.Field == "state" && !f.withState {
			return flags, Usage("state: is not allowed here: dead letters are dead, or poisoned with --poisoned")
		}
		for _, b := range before {
			if t.Field == b.Field {
				return flags, Usage("%s is given twice, by a flag and in the filter", t.Field)
			}
		}
	}
	all, err := append(before, terms...).Filter(now)
	if err != nil {
		return flags, Usage("%s", filterError(err))
	}
	return all, nil
}

// filterError returns what is wrong with a filter.
func filterError(err error) string {
	if e := (*pawltype.Error)(nil); errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// Given reports whether anything narrows the selection.
func (f *FilterFlags) Given() bool {
	return f.language != "" || len(f.states) > 0 || f.after != "" || f.before != "" || f.Filter.String() != ""
}

// ReadMoment parses a time, or an age before now.
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
