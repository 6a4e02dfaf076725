package stats

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/fxamacker/cbor/v2"
)

// What survives a restart: all steps, and the failures of types. Counts since the process began do not, as readers of counters expect.

// format is the start of saved statistics. The checksum of the rest follows, then the rest: the queues, and after them the types.
const format = "pawl stats 3\n"

type saved struct {
	_       struct{} `cbor:",toarray"`
	Figures []savedFigures
}

type savedFigures struct {
	_     struct{} `cbor:",toarray"`
	Space bool     // for a namespace as a whole
	Queue Queue
	Born  int64
	Last  int64
	Rates [len(rateLevels)][]slot[Rates]
	Times [len(timeLevels)][]slot[times]
	Types []savedType
}

type savedType struct {
	_     struct{} `cbor:",toarray"`
	Name  string
	Fails []slot[uint32]
	Last  Failure
}

// ErrFormat is returned for saved statistics that can't be read.
var ErrFormat = errors.New("not a complete file of statistics")

// Save encodes what survives a restart.
func (r *Recorder) Save(now time.Time) ([]byte, error) {
	body, err := cbor.Marshal(r.saved(now))
	if err != nil {
		return nil, err
	}
	types, err := cbor.Marshal(r.savedHistories())
	if err != nil {
		return nil, err
	}
	body = append(body, types...)
	out := binary.BigEndian.AppendUint64([]byte(format), xxhash.Sum64(body))
	return append(out, body...), nil
}

func (r *Recorder) saved(now time.Time) (s saved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now.Unix())
	r.flush()
	for ns, f := range r.spaces {
		if !r.current(&f.named) {
			delete(r.spaces, ns)
			continue
		}
		s.Figures = append(s.Figures, f.saved(r.second, true))
	}
	maps.DeleteFunc(r.schedules, func(_ string, t *ticks) bool { return !r.current(&t.named) })
	maps.DeleteFunc(r.stale, func(of [2]string, _ uint64) bool { return !r.exists(of[0]) })
	for _, f := range r.queues {
		if !r.current(&f.named) {
			r.drop(f)
			continue
		}
		s.Figures = append(s.Figures, f.saved(r.second, false))
	}
	return s
}

func (f *figures) saved(second int64, space bool) savedFigures {
	s := savedFigures{Space: space, Queue: f.Queue, Born: f.born, Last: f.last}
	for i, l := range rateLevels {
		s.Rates[i] = kept(&f.rates[i], l, second)
	}
	for i, l := range timeLevels {
		s.Times[i] = kept(&f.times[i], l, second)
	}
	for name, t := range f.types {
		if fails := kept(&t.fails, failLevel, second); len(fails) > 0 {
			s.Types = append(s.Types, savedType{Name: name, Fails: fails, Last: t.last})
		}
	}
	return s
}

// kept returns a copy of the steps that are not too old.
func kept[T any](s *series[T], l level, second int64) []slot[T] {
	return append([]slot[T](nil), s.after(l.at(second)-l.keep)...)
}

// Load loads what another process saved into a recorder in which nothing has happened yet. Steps that are too old are
// dropped as time passes. Errors are ErrFormat, and leave the recorder unchanged.
func (r *Recorder) Load(file []byte, now time.Time) error {
	body, ok := bytes.CutPrefix(file, []byte(format))
	if !ok || len(body) < 8 || xxhash.Sum64(body[8:]) != binary.BigEndian.Uint64(body) {
		return ErrFormat
	}
	var s saved
	var types []savedHistory
	rest, err := cbor.UnmarshalFirst(body[8:], &s)
	if err == nil {
		err = cbor.Unmarshal(rest, &types)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range s.Figures {
		r.load(&s.Figures[i], now.Unix())
	}
	for i := range types {
		r.loadHistory(&types[i], now.Unix())
	}
	return nil
}

func (r *Recorder) load(s *savedFigures, second int64) {
	f := &figures{named: named{s.Queue, s.Born, s.Last}, types: map[string]*typeFigures{}}
	for i := range f.rates {
		f.rates[i].slots = s.Rates[i]
	}
	for i := range f.times {
		f.times[i].slots = s.Times[i]
	}
	f.dropAfter(second)
	if fives := f.rates[2].slots; len(fives) > 0 {
		if first := time.Unix(fives[0].At*int64(rateLevels[2].step/time.Second), 0); first.Before(r.since) {
			r.since = first
		}
	}
	if s.Space {
		r.spaces[s.Queue.Namespace] = f
		return
	}
	if len(r.queues) >= maxQueues && s.Queue.Name != Other {
		return
	}
	r.queues[s.Queue] = f
	for _, t := range s.Types {
		if r.types < maxAllTypes && len(f.types) <= maxTypes {
			r.types++
			t.Last.At = t.Last.At.UTC()
			f.types[t.Name] = &typeFigures{fails: series[uint32]{t.Fails}, last: t.Last}
		}
	}
}
