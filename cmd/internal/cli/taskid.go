package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// partOfID matches the beginning of an id, and its end too as in the web UI: 01a2267d…4fd301.
var partOfID = regexp.MustCompile(`^([0-9a-f]{8}[0-9a-f-]{0,27})(?:(?:…|\.\.\.)([0-9a-f-]{1,27}))?$`)

const (
	// maxSearched is how many tasks are searched for one with a part of its id.
	maxSearched = 10_000
	// An id begins with the time at which the producer made its request. Its clock may be off, and the request may have
	// been repeated.
	clockSlack, repeatSlack = time.Minute, 3 * time.Minute
)

// TaskID returns the id of a task that is given whole, by its first eight digits or more, or as the web UI shortens it.
// What is none of these is returned as it is.
func (a *App) TaskID(ctx context.Context, client *pawl.Client, given string) (string, error) {
	if id, err := uuid.Parse(given); err == nil {
		return id.String(), nil
	}
	part := partOfID.FindStringSubmatch(strings.ToLower(given))
	if part == nil {
		return given, nil
	}
	digits := strings.ReplaceAll(part[1], "-", "")
	digits = digits[:min(len(digits), 12)]
	first, _ := strconv.ParseInt(digits, 16, 64)
	unknown := 4 * (12 - len(digits)) // bits
	f := admin.Filter{CreatedAfter: time.UnixMilli(first << unknown).Add(-clockSlack),
		CreatedBefore: time.UnixMilli((first + 1) << unknown).Add(repeatSlack)}
	var found []string
	searched := 0
	for t, err := range a.Admin(client).Tasks().List(ctx, f) {
		if _, incomplete := errors.AsType[*pawltype.IncompleteError](err); incomplete { // what is missing may match too
			return "", fmt.Errorf("task %q: a part of the cluster does not answer: give the whole id", given)
		}
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(t.ID, part[1]) && strings.HasSuffix(t.ID, part[2]) {
			found = append(found, t.ID)
		}
		if searched++; len(found) > 1 || searched == maxSearched {
			break
		}
	}
	switch {
	case len(found) == 1 && searched < maxSearched:
		return found[0], nil
	case len(found) > 1:
		return "", idError(pawltype.ErrInvalidArgument, "task %q: both %s and %s match: give more digits of its id", given,
			found[0], found[1])
	case searched == maxSearched:
		return "", idError(pawltype.ErrInvalidArgument, "task %q: over %d tasks were created at that time: give the whole id",
			given, maxSearched)
	}
	return "", idError(pawltype.ErrNotFound, "task %q: not found: no task has such an id", given)
}

func idError(code pawltype.ErrorCode, format string, args ...any) error {
	return &pawltype.Error{Code: code, Field: "task_id", Message: fmt.Sprintf(format, args...)}
}
