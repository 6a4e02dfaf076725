package trail

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// Of records that a collector rejects only those are left out for which it does so. If it rejects all, none are, and it is soon left alone.
func TestExportFindsWhatIsRejected(t *testing.T) {
	const all = "abcdefghijklmnopqrstuvwxyz"
	down := errors.New("down")
	for _, c := range []struct {
		rejects string
		at      int // the call that fails; 0: none
		want    string
		err     error
		sent    int // at most
	}{
		{"", 0, all, nil, 1},
		{"a", 0, all[1:], nil, 12},
		{"z", 0, all[:25], nil, 12},
		{"amz", 0, "bcdefghijklnopqrstuvwxy", nil, 30},
		{all[:25], 0, "z", errRejected, maxRejected},
		{all[:2], 0, all[2:], nil, 12},
		{all, 0, "", errRejected, maxRejected},
		{"", 1, "", down, 1},
		{"z", 2, "", down, 2},
	} {
		var got string
		sent := 0
		tr := New(Config{Log: slog.New(slog.DiscardHandler), Export: func(_ context.Context, records []slog.Record) (int, error) {
			if sent++; sent == c.at {
				return 0, down
			}
			of := ""
			for _, r := range records {
				of += r.Message
			}
			if strings.ContainsAny(of, c.rejects) {
				return len(records), nil
			}
			got += of
			return 0, nil
		}})
		var records []slog.Record
		for _, one := range all {
			records = append(records, slog.NewRecord(time.Time{}, slog.LevelInfo, string(one), 0))
		}
		err := tr.Export(t.Context(), records)
		if !errors.Is(err, c.err) || sent > c.sent || err == nil && (got != c.want || tr.Lost() != uint64(len(all)-len(c.want))) ||
			err != nil && tr.Lost() != 0 {
			t.Errorf("a collector that rejects %q gets %q by %d calls, %v; %d are lost, want %q, %v", c.rejects, got, sent, err,
				tr.Lost(), c.want, c.err)
		}
	}
}

// A collector that accepts some of a batch has those, and the others are lost.
func TestExportOfAPart(t *testing.T) {
	var got []int
	tr := New(Config{Log: slog.New(slog.DiscardHandler), Export: func(_ context.Context, records []slog.Record) (int, error) {
		got = append(got, len(records))
		return 2, nil
	}})
	if err := tr.Export(t.Context(), make([]slog.Record, 3)); err != nil || !slices.Equal(got, []int{3}) || tr.Lost() != 2 {
		t.Errorf("sent %v, %v, lost %d", got, err, tr.Lost())
	}
}
