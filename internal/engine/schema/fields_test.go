package schema

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/task"
)

// sample has a field of each kind.
type sample struct {
	state task.State
	at    int64
	on    bool
	level float64
	keep  *time.Duration
	name  string
	tags  []string
	data  []byte
	id    task.ID
	by    task.Author
	sub   *sample
	subs  []sample
	raw   [][]byte
	all   []task.Author

	calls int // of fields; not in the row
}

func (s *sample) fields(f *Fields) {
	s.calls++
	Num(f, 1, &s.state)
	Num(f, 2, &s.at)
	f.Flag(3, &s.on)
	f.Float(4, &s.level)
	f.Optional(5, &s.keep)
	f.Text(6, &s.name)
	f.Texts(7, &s.tags)
	f.Bytes(16, &s.data) // from here on, a tag takes two bytes
	f.ID(17, &s.id)
	f.JSON(18, &s.by, !s.by.IsZero())
	Part(f, 19, &s.sub, (*sample).fields)
	Parts(f, 20, &s.subs, (*sample).fields)
	if f.Encoding() {
		for _, b := range s.raw {
			f.Put(21, b)
		}
	}
	for b := range f.Each(21) {
		s.raw = append(s.raw, b)
	}
	JSONs(f, 22, &s.all)
}

func (s *sample) encode() []byte { return Encode(0, s, (*sample).fields) }

func decodeSample(row []byte) (*sample, error) {
	s := &sample{}
	err := Decode(row, s, (*sample).fields)
	s.forgetCalls()
	return s, err
}

func (s *sample) forgetCalls() {
	if s.calls = 0; s.sub != nil {
		s.sub.forgetCalls()
	}
	for i := range s.subs {
		s.subs[i].forgetCalls()
	}
}

func full() *sample {
	return &sample{state: task.Dead, at: -5, on: true, level: 2.5, keep: new(time.Duration(0)), name: "n", tags: []string{"a", "b"},
		data: []byte("d"), id: task.ID{1}, by: task.Author{Name: "ada"}, sub: &sample{name: "s"}, subs: []sample{{at: 1}, {at: 2}},
		raw: [][]byte{[]byte("x"), {}}, all: []task.Author{{Name: "eva"}, {}}}
}

// The form of a row is that of protobuf, behind the version. Data on disk has it, so it must not change.
func TestRowForm(t *testing.T) {
	const want = "01" + "0807" + "10fbffffffffffffffff01" + "1801" + "20808080808080808240" + "2801" + "32016e" + "3a0161" +
		"3a0162" + "82010164" +
		"8a011001000000000000000000000000000000"
	got := hex.EncodeToString(full().encode())
	if !strings.HasPrefix(got, want) {
		t.Errorf("the row is\n%s, want\n%s...", got, want)
	}
	if empty := (&sample{}).encode(); !bytes.Equal(empty, []byte{RowVersion}) {
		t.Errorf("a row of zero values is %x", empty)
	}
}

// Every kind of field survives encoding and decoding.
func TestFields(t *testing.T) {
	for _, s := range []*sample{full(), {}, {keep: new(time.Hour)}, {sub: &sample{sub: &sample{name: "deep"}}}} {
		row := s.encode()
		s.forgetCalls()
		if again, err := decodeSample(row); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v was decoded as %+v, %v", s, again, err)
		}
	}
}

// A row whose fields are in the order of the calls is decoded in one pass.
func TestOnePass(t *testing.T) {
	var s sample
	if err := Decode(full().encode(), &s, (*sample).fields); err != nil || s.calls != 1 {
		t.Errorf("the row was decoded in %d passes, %v", s.calls, err)
	}
	if err := Decode([]byte{RowVersion}, &s, (*sample).fields); err != nil || s.calls != 1 {
		t.Errorf("a row without fields takes %d passes, %v", s.calls-1, err)
	}
}

// A part whose fields are all zero is not written.
func TestEmptyParts(t *testing.T) {
	s := &sample{sub: &sample{}, subs: []sample{{}, {name: "n"}}}
	got, err := decodeSample(s.encode())
	if err != nil || got.sub != nil || len(got.subs) != 1 {
		t.Errorf("%+v was decoded as %+v, %v", s, got, err)
	}
}

// A row may have fields that this release does not know, of every wire type and at any place, and known fields in any order.
func TestUnknownFields(t *testing.T) {
	row := full().encode()
	known := split(t, row[1:])
	unknown := [][]byte{
		protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 7),
		protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("later")),
		protowire.AppendFixed32(protowire.AppendTag(nil, 99, protowire.Fixed32Type), 7),
		protowire.AppendFixed64(protowire.AppendTag(nil, 99, protowire.Fixed64Type), 7),
		protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("not a number")),
		protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 7), // not a string
	}
	decode := func(what string, fields [][]byte) {
		got, err := decodeSample(append([]byte{RowVersion}, slices.Concat(fields...)...))
		if err != nil || !reflect.DeepEqual(got, full()) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	for i := range len(known) + 1 {
		for _, u := range unknown {
			decode("one unknown field", slices.Insert(slices.Clone(known), i, u))
		}
		decode("all unknown fields", slices.Insert(slices.Clone(known), i, unknown...))
	}
	decode("another order", append(slices.Clone(known[len(known)/2:]), known[:len(known)/2]...))
	decode("in front and behind", slices.Concat(unknown, known, unknown))
}

// A row that is cut within a field is refused, and so is one without a known version.
func TestCutRows(t *testing.T) {
	row := full().encode()
	ends := map[int]bool{1: true}
	n := 1
	for _, f := range split(t, row[1:]) {
		n += len(f)
		ends[n] = true
	}
	for n := range row {
		if _, err := decodeSample(row[:n]); (err == nil) != ends[n] {
			t.Errorf("cut after %d of %d bytes: %v", n, len(row), err)
		}
	}
	for _, bad := range [][]byte{nil, {}, {0}, {RowVersion + 1, 8, 1}, {RowVersion, 0, 1}, {RowVersion, 1<<3 | 3}} {
		if s, err := decodeSample(bad); err == nil {
			t.Errorf("row %x was decoded as %+v", bad, s)
		}
	}
}

// Damage within a field's own form is refused, whatever follows.
func TestDamagedFields(t *testing.T) {
	for what, tag := range map[string]uint64{"JSON": 18, "part": 19, "one of several parts": 20, "one of several in JSON": 22} {
		f := Encoding(nil)
		f.Put(tag, []byte{0xff})
		for _, row := range [][]byte{f.Row(), append(bytes.Clone(f.Row()), full().encode()[1:]...)} {
			if s, err := decodeSample(row); err == nil {
				t.Errorf("%s: row %x was decoded as %+v", what, row, s)
			}
		}
	}
}

func split(t *testing.T, b []byte) (fields [][]byte) {
	for len(b) > 0 {
		_, _, n := protowire.ConsumeField(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		fields, b = append(fields, b[:n]), b[n:]
	}
	return fields
}
