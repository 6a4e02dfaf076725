package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestHistogram(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 1000, 123456, time.Second, time.Hour, 1<<62 + 12345} {
		i := bucketOf(d)
		end := bucketEnd(i)
		if end < d || float64(end-d) > float64(d)/subBuckets {
			t.Errorf("bucket of %d ends at %d, want at most 1/%d above", d, end, subBuckets)
		}
		if i > 0 && bucketEnd(i-1) >= d {
			t.Errorf("%d is in bucket %d, but the one below ends at %d", d, i, bucketEnd(i-1))
		}
	}
	var h histogram
	for i := range 1000 {
		h.record(time.Duration(i+1) * time.Millisecond)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.5, 501 * time.Millisecond}, {0.99, 991 * time.Millisecond}, {1, time.Second}} {
		if got := h.at(c.q); got < c.want || got > c.want+c.want/subBuckets {
			t.Errorf("at(%v) = %v, want %v", c.q, got, c.want)
		}
	}
}

func TestCPUPerTask(t *testing.T) {
	s := spent{took: time.Second, server: 30 * time.Millisecond, client: 20 * time.Millisecond}
	if got := s.perTask(1000); got == nil || *got != (cpuLine{Server: 30, Client: 20}) {
		t.Errorf("1000 tasks cost %+v each", got)
	}
	for _, none := range []*cpuLine{s.perTask(0), spent{server: time.Second}.perTask(1)} {
		if none != nil {
			t.Errorf("what is not known is %+v", none)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	var before syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	used := time.Duration(before.Utime.Nano() + before.Stime.Nano())
	if got := cpuTime(os.Getpid()); got < used-2*clockTick || got > used+time.Second {
		t.Errorf("this process has used %v, and %v as the system says", got, used)
	}
	if got := cpuTime(0); got != 0 {
		t.Errorf("no process has used %v", got)
	}
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		d               time.Duration
		span, per, days string
	}{
		{0, "0s", "", ""},
		{30 * time.Second, "30s", "30s", "30s"},
		{time.Hour, "60m", "1h", "1h"},
		{90 * time.Minute, "90m", "1h30m", "1h30m"},
		{time.Hour + time.Second, "60m", "1h0m1s", "1h0m1s"},
		{14 * 24 * time.Hour, "14d", "336h", "14d"},
		{250 * time.Millisecond, "250ms", "250ms", "250ms"},
		{90*24*time.Hour - time.Second, "90d", "2159h59m59s", "2159h59m59s"},
		{89*24*time.Hour + 11*time.Hour, "89d", "2147h", "2147h"},
		{48*time.Hour - time.Minute, "2d", "47h59m", "47h59m"},
		{2*time.Hour - time.Second, "2h", "1h59m59s", "1h59m59s"},
		{2*time.Minute - time.Millisecond, "2m", "1m59.999s", "1m59.999s"},
		{time.Second - time.Microsecond, "1s", "999.999ms", "999.999ms"},
		{100 * 365 * 24 * time.Hour, "36500d", "876000h", "36500d"},
		{math.MaxInt64, "106751d", "2562047h47m16.854775807s", "2562047h47m16.854775807s"},
	} {
		if span(c.d) != c.span || period(c.d) != c.per || days(c.d) != c.days {
			t.Errorf("%v: span %q, period %q, days %q, want %q, %q, %q", c.d, span(c.d), period(c.d), days(c.d), c.span, c.per, c.days)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]string{"4096": "4KiB", "256MiB": "256MiB", "1000": "1000B", "3 GiB": "3GiB", "0": "0"} {
		var v sizeValue
		if err := v.Set(in); err != nil || v.String() != want {
			t.Errorf("size %q = %q, %v, want %q", in, v.String(), err, want)
		}
	}
	for _, bad := range []string{"", "MiB", "-1", "1e3", "99999999TiB", "5MB"} {
		if err := new(sizeValue).Set(bad); err == nil {
			t.Errorf("size %q was taken", bad)
		}
	}
}

func TestProgressBar(t *testing.T) {
	if got, want := bar("filled", 1, 4), "filled  "+strings.Repeat("━", 8)+strings.Repeat("─", 24)+"  1/4  25%"; got != want {
		t.Errorf("bar = %q, want %q", got, want)
	}
	var out bytes.Buffer
	b := &progressBar{w: &out, label: "x", total: 2}
	b.set(2)
	b.done()
	b.set(1)
	if got := out.String(); !strings.HasPrefix(got, "\r") || strings.Count(got, "x  ") != 1 {
		t.Errorf("drawn: %q", got)
	}
	silent := (&app{err: &out}).progress("x", 2)
	out.Reset()
	silent.set(1)
	silent.done()
	if out.Len() > 0 {
		t.Errorf("drew %q without a terminal", out.String())
	}
}

// TestPrintable: what tasks contain doesn't reach the terminal as commands.
func TestPrintable(t *testing.T) {
	var out bytes.Buffer
	columns(&out, "A|B", [][]string{{"\x1b[2Jx\ty\nz", "ü"}})
	if got, want := out.String(), "A           B\n [2Jx y z    ü\n"; strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 2 {
		t.Errorf("columns = %q, want something like %q", got, want)
	}
}

func TestLimitedAndLastBytes(t *testing.T) {
	l := &limited{limit: 4}
	n, err := io.Copy(l, strings.NewReader("abcdef"))
	if n != 6 || err != nil || string(l.data) != "abcd" || !l.over {
		t.Errorf("limited: %d, %v, %q, over %t", n, err, l.data, l.over)
	}
	last := &lastBytes{limit: 4}
	for _, s := range []string{"abc", "defghi", "\xffjk\n"} {
		_, _ = last.Write([]byte(s))
	}
	if got := last.text(); got != "jk" {
		t.Errorf("lastBytes = %q, want jk", got)
	}
}

// TestHelp: every command says what it does, with an example.
func TestHelp(t *testing.T) {
	root := newRoot(&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	todo := slices.Clone(root.Commands())
	for len(todo) > 0 {
		cmd := todo[0]
		todo = append(todo[1:], cmd.Commands()...)
		if cmd.Short == "" || len(cmd.Commands()) == 0 && cmd.Example == "" {
			t.Errorf("%s: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
	}
}

// TestExamplesCanBeCopied: a line of an example that goes on ends with one backslash, as a shell wants it.
func TestExamplesCanBeCopied(t *testing.T) {
	root := newRoot(&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	todo := slices.Clone(root.Commands())
	for len(todo) > 0 {
		cmd := todo[0]
		todo = append(todo[1:], cmd.Commands()...)
		if strings.Contains(cmd.Example, `\\`) {
			t.Errorf("%s: two backslashes in the example\n%s", cmd.CommandPath(), cmd.Example)
		}
	}
}

// TestIdleFlags: they are flags of commands that there are, refused there and not in their help.
func TestIdleFlags(t *testing.T) {
	does := func(words ...string) (status int, said string) {
		var out bytes.Buffer
		status = run(words, strings.NewReader(""), &out, &out)
		return status, out.String()
	}
	argument := map[string]string{"cert": "ca", "restore": "file", "payload-key": "k1", "bench": "enqueue"}
	for name, flags := range idleFlags {
		_, help := does(name, "--help")
		_, help, _ = strings.Cut(help, "\nFlags:")
		for _, flag := range flags {
			given := "--" + flag
			if flag != "plaintext" {
				given += "=json"
			}
			status, said := does(strings.Fields(name + " " + argument[name] + " " + given)...)
			if status != exitUsage || !strings.Contains(said, " takes no --"+flag) {
				t.Errorf("pawl %s %s: status %d, %q", name, given, status, said)
			}
			if help == "" || strings.Contains(help, "--"+flag+" ") {
				t.Errorf("pawl %s --help: it tells of --%s, or of no flags:\n%s", name, flag, help)
			}
		}
	}
}

// TestListsWatch: what lists can be watched. Events go on by themselves.
func TestListsWatch(t *testing.T) {
	root := newRoot(&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	todo, lists := slices.Clone(root.Commands()), 0
	for len(todo) > 0 {
		cmd := todo[0]
		todo = append(todo[1:], cmd.Commands()...)
		if cmd.Name() == "events" || cmd.Name() != "ls" && cmd.Flags().Lookup("limit") == nil && !strings.HasPrefix(cmd.Short, "List ") || cmd.HasSubCommands() {
			continue
		}
		lists++
		if cmd.Flags().Lookup("watch") == nil {
			t.Errorf("%s has no --watch", cmd.CommandPath())
		}
	}
	if lists < 13 {
		t.Errorf("found %d lists, want at least 13", lists)
	}
}

// TestLongNamesAreClipped: a queue of 256 bytes does not push the columns of all others away.
func TestLongNamesAreClipped(t *testing.T) {
	var b bytes.Buffer
	writeQueues(&b, []*admin.Queue{{Name: "mail"}, {Name: strings.Repeat("q", 256)}})
	lines := strings.Split(b.String(), "\n")
	if at := strings.Index(lines[0], "READY"); at != maxCell+2 || !strings.HasPrefix(lines[2], strings.Repeat("q", maxCell-1)+"…") {
		t.Errorf("the second column begins at %d, want %d:\n%s", at, maxCell+2, b.String())
	}
}
