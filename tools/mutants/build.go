package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// plant is the code of the file with all wraps.
func (f *source) plant() []byte {
	type event struct {
		at, kind int // of kind: 0 the end of a wrap, 1 its begin, 2 its inner edit
		wrap     *wrap
		seq      int
	}
	var events []event
	for i := range f.wraps {
		w := &f.wraps[i]
		events = append(events, event{w.start, 1, w, i}, event{w.end, 0, w, i})
		if w.inner != nil {
			events = append(events, event{w.inner.start, 2, w, i})
		}
	}
	// At one place: the inner of two wraps ends first, and the outer begins first. Of two around the same the first is the outer.
	slices.SortStableFunc(events, func(a, b event) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.kind != b.kind:
			return a.kind - b.kind
		case a.kind == 0 && a.wrap.start != b.wrap.start:
			return b.wrap.start - a.wrap.start
		case a.kind == 0:
			return b.seq - a.seq
		case a.wrap.end != b.wrap.end:
			return b.wrap.end - a.wrap.end
		}
		return a.seq - b.seq
	})
	var out bytes.Buffer
	done := 0
	for _, e := range events {
		out.Write(f.text[done:e.at])
		done = e.at
		switch e.kind {
		case 0:
			out.WriteString(e.wrap.after)
		case 1:
			out.WriteString(e.wrap.before)
		case 2:
			out.WriteString(e.wrap.inner.text)
			done = e.wrap.inner.end
		}
	}
	out.Write(f.text[done:])
	return out.Bytes()
}

// switches is the code that knows which mutant is on.
const switches = `package %s

import (
	"cmp"
	"os"
	"strconv"
)

var mutantNow = func() int { n, _ := strconv.Atoi(os.Getenv("` + mutantVar + `")); return n }()

func mutantOn(n int) bool { return mutantNow == n }

func mutantOne(n int) int {
	if mutantNow == n {
		return 1
	}
	return 0
}

func mutantLess[T cmp.Ordered](n int, a, b T) bool {
	return mutantNow == n && a <= b || mutantNow == n+1 && a != b || mutantNow != n && mutantNow != n+1 && a < b
}

func mutantGreater[T cmp.Ordered](n int, a, b T) bool { return mutantLess(n, b, a) }

func mutantAtMost[T cmp.Ordered](n int, a, b T) bool {
	return mutantNow == n && a < b || mutantNow == n+1 && a == b || mutantNow != n && mutantNow != n+1 && a <= b
}

func mutantAtLeast[T cmp.Ordered](n int, a, b T) bool { return mutantAtMost(n, b, a) }

func mutantMin[T cmp.Ordered](n int, a T, more ...T) T {
	for _, b := range more {
		if mutantNow == n {
			a = max(a, b)
		} else {
			a = min(a, b)
		}
	}
	return a
}

func mutantMax[T cmp.Ordered](n int, a T, more ...T) T {
	for _, b := range more {
		if mutantNow == n {
			a = min(a, b)
		} else {
			a = max(a, b)
		}
	}
	return a
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantAdd[T mutantNumber](n int, a, b T) T {
	if mutantNow == n {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](n int, a, b T) T {
	if mutantNow == n {
		return a + b
	}
	return a - b
}

func mutantSwap[T any](n int, a, b T) (T, T) {
	if mutantNow == n {
		return b, a
	}
	return a, b
}

func mutantZero[T any](n int, a T) T {
	if mutantNow == n {
		var zero T
		return zero
	}
	return a
}
`

// mutantVar is the environment variable that turns a mutant on.
const mutantVar = "PAWL_MUTANT"

// builder compiles a package's tests in a directory of its own. The package's is not touched.
type builder struct {
	p   *pkg
	dir string
}

// compile makes a test program of files that replace those of the package.
func (b *builder) compile(ctx context.Context, binary string, replaced map[string][]byte, flags ...string) (output []byte, err error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range replaced {
		at := filepath.Join(b.dir, filepath.Base(binary)+"-"+filepath.Base(path))
		if err := os.WriteFile(at, text, 0o600); err != nil {
			return nil, err
		}
		overlay.Replace[path] = at
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	at := binary + ".json"
	if err := os.WriteFile(at, list, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-c", "-overlay", at, "-o", binary}, append(flags, ".")...)...)
	cmd.Dir = b.p.Tests
	return cmd.CombinedOutput()
}

var errorAt = regexp.MustCompile(`(?m)^(?:\./)?([^\s:]+\.go):(\d+):\d+: `)

// mutated compiles the package with all mutants that can be switched. What the compiler refuses it takes out, and returns.
func (b *builder) mutated(ctx context.Context) (binary string, refused map[int]bool, err error) {
	refused = map[int]bool{}
	binary = filepath.Join(b.dir, "planted.test")
	for {
		replaced := map[string][]byte{filepath.Join(b.p.Dir, "mutant_switches.go"): fmt.Appendf(nil, switches, b.p.types.Name())}
		for _, f := range b.p.files {
			if len(f.wraps) > 0 {
				replaced[f.path] = f.plant()
			}
		}
		output, err := b.compile(ctx, binary, replaced, "-gcflags=-e")
		if err == nil {
			return binary, refused, nil
		}
		before := len(refused)
		for _, at := range errorAt.FindAllSubmatch(output, -1) {
			line, _ := strconv.Atoi(string(at[2]))
			b.p.unplant(filepath.Base(string(at[1])), line, refused)
		}
		if len(refused) == before || ctx.Err() != nil {
			return "", nil, fmt.Errorf("with its mutants %s does not compile: %w\n%s", b.p.Name, err, output)
		}
	}
}

// unplant takes the wraps that begin in a line out.
func (p *pkg) unplant(file string, line int, out map[int]bool) {
	for _, f := range p.files {
		// The compiler names what replaces a file by either name.
		if name := filepath.Base(f.path); file != name && file != "planted.test-"+name {
			continue
		}
		f.wraps = slices.DeleteFunc(f.wraps, func(w wrap) bool {
			from, to := 1+bytes.Count(f.text[:w.start], []byte("\n")), 1+bytes.Count(f.text[:w.end], []byte("\n"))
			if line != from && line != to {
				return false
			}
			for _, id := range w.ids {
				out[id] = true
			}
			return true
		})
	}
}

// rebuilt compiles the package with one mutant that can't be switched.
func (b *builder) rebuilt(ctx context.Context, m *mutant) (binary string, compiles bool, err error) {
	binary = filepath.Join(b.dir, fmt.Sprintf("rebuilt-%d.test", m.id))
	e := m.rebuilt
	text := slices.Concat(m.file.text[:e.start], []byte(e.text), m.file.text[e.end:])
	if _, err := b.compile(ctx, binary, map[string][]byte{m.file.path: text}); err != nil {
		return "", false, ctx.Err()
	}
	return binary, true, nil
}
