package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// WatchEvery is the refresh interval of --watch.
const WatchEvery = 2 * time.Second

// List is the RunE of a command that lists: once, or with --watch repeatedly until it is interrupted.
func (a *App) List(cmd *cobra.Command, show func(ctx context.Context, client *pawl.Client, args []string) error) {
	watch := cmd.Flags().BoolP("watch", "w", false, "refresh every "+text.Period(WatchEvery)+" until interrupted")
	cmd.Aliases = append(cmd.Aliases, "list")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx := cmd.Context()
		a.Listed = listed[strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")]
		look := func(client *pawl.Client) error { return show(ctx, client, args) }
		addresses := strings.Split(a.Server, ",")
		if !*watch && len(addresses) == 1 {
			return look(client) // which may report its progress meanwhile
		}
		w := watcher{out: a.Out, err: a.Err, size: screenOf(a.Out), describe: a.Describe}
		if !*watch {
			g := a.fromAny(client, addresses, look)
			if g.partial {
				g.err = ErrSilent
			}
			return w.print(g)
		}
		return w.run(ctx, func() snapshot { return a.fromAny(client, addresses, look) })
	})
}

// fromAny returns the list as a node sees it that reaches all of the cluster, if one of several addresses leads to such
// a node: the one that the client is connected to may be cut off from the others, and then still answers for itself.
func (a *App) fromAny(client *pawl.Client, addresses []string, look func(*pawl.Client) error) snapshot {
	first := a.snapshot(func() error { return look(client) })
	for _, addr := range addresses {
		if len(addresses) == 1 || !first.partial && !errors.Is(first.err, pawltype.ErrUnavailable) {
			break
		}
		other, err := a.dialTo(addr, a.keys, pawl.DialOptions{NoRouting: true, RetryFor: -1})
		if err != nil {
			continue
		}
		a.record(other)
		g := a.snapshot(func() error { return look(other) })
		_ = other.Close()
		if g.err == nil && !g.partial {
			return g
		}
	}
	return first
}

// snapshot is the result of one refresh.
type snapshot struct {
	at    time.Time
	rows  []byte // standard output
	notes []byte // standard error
	err   error
	// partial means that something is missing, which ErrSilent has reported.
	partial bool
}

// snapshot runs show with its output redirected to memory. Nothing else may write to a's output meanwhile.
func (a *App) snapshot(show func() error) snapshot {
	var rows, notes bytes.Buffer
	out, err := a.Out, a.Err
	a.Out, a.Err = &rows, &notes
	a.Forget()
	problem := show()
	partial := problem == ErrSilent
	if partial { // the next refresh may lack nothing
		problem = nil
	}
	a.Out, a.Err = out, err
	return snapshot{time.Now(), rows.Bytes(), notes.Bytes(), problem, partial}
}

// screenOf returns a function that reports the terminal's size in columns and lines; nil if out is no terminal whose cursor can be moved.
func screenOf(out io.Writer) func() (width, height int) {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok || !text.IsTerminal(out) || text.DumbTerminal() {
		return nil
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0
		}
		return width, height
	}
}

// watcher shows a list repeatedly: on a terminal by redrawing the screen, elsewhere by printing the whole list each time.
type watcher struct {
	out, err io.Writer
	size     func() (width, height int) // of the terminal; nil: no terminal
	describe func(error) string         // describes an error in a few words

	last snapshot // the last successful one
	why  string   // why there is no newer one; "": no error, though the answer may be late
}

// run refreshes until ctx is done, which is not an error. Once the server has answered, run keeps waiting for it if it goes away.
func (w *watcher) run(ctx context.Context, look func() snapshot) error {
	seen := make(chan snapshot, 1)
	ask := func() { go func() { seen <- look() }() }
	ask()
	asking := true
	tick := time.NewTicker(WatchEvery)
	defer tick.Stop()
	defer w.leave()
	for {
		select {
		case g := <-seen:
			asking = false
			if ctx.Err() != nil {
				return nil
			}
			if err := w.take(g); err != nil {
				return err
			}
		case <-tick.C:
			if asking {
				w.draw(time.Now())
				continue
			}
			ask()
			asking = true
		case <-ctx.Done():
			if asking {
				<-seen // the call ends with ctx too, and writes to the output until then
			}
			return nil
		}
	}
}

// take shows the result of a refresh. It returns errors that another refresh wouldn't fix, and any error of the first
// one, so that a wrong address doesn't clear the screen.
func (w *watcher) take(g snapshot) error {
	if g.err != nil {
		return w.miss(g.err)
	}
	w.last, w.why = g, ""
	if w.size != nil {
		w.draw(g.at)
		return nil
	}
	return w.print(g)
}

// print writes the result of a refresh, and returns its error.
func (w *watcher) print(g snapshot) error {
	if _, err := w.out.Write(g.rows); err != nil {
		return err
	}
	if _, err := w.err.Write(g.notes); err != nil {
		return err
	}
	return g.err
}

func (w *watcher) miss(err error) error {
	passes := errors.Is(err, pawltype.ErrUnavailable) || errors.Is(err, pawltype.ErrRateLimited)
	if w.last.at.IsZero() || !passes {
		return err
	}
	begins := w.why == ""
	w.why = w.describe(err)
	w.draw(time.Now())
	if begins && w.size == nil {
		fmt.Fprintf(w.err, "pawl: no answer: %s: retrying every %s\n", w.why, text.Period(WatchEvery))
	}
	return nil
}

// draw redraws the screen as of now, if there is a terminal and anything to show.
func (w *watcher) draw(now time.Time) {
	if w.size == nil || w.last.at.IsZero() {
		return
	}
	width, height := w.size()
	fmt.Fprint(w.out, "\x1b[H\x1b[2J"+strings.Join(w.picture(now, width, height), "\n")) // cursor home, clear screen
}

// leave moves the cursor to a new line.
func (w *watcher) leave() {
	if w.size != nil && !w.last.at.IsZero() {
		fmt.Fprintln(w.out)
	}
}

// picture returns the lines that fit on a screen: the head, as many rows as fit from the top, and the notes. No line is
// wider than the screen. A size of 0 is unknown: then nothing is cut.
func (w *watcher) picture(now time.Time, width, height int) []string {
	rows, notes := linesOf(w.last.rows), linesOf(w.last.notes)
	head := []string{w.head(now), ""}
	if room := max(height-len(head)-len(notes), 1); height > 0 && len(rows) > room {
		more := fmt.Sprintf("… %s", text.Count(int64(len(rows)-(room-1)), "more line"))
		rows = append(rows[:room-1:room-1], more)
	}
	lines := append(append(head, rows...), notes...)
	if height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	for i := range lines {
		if width > 0 {
			lines[i] = displaywidth.TruncateString(lines[i], width, "…")
		}
	}
	return lines
}

// head shows the time of the last answer and the refresh interval, so that a stale screen doesn't look alive.
func (w *watcher) head(now time.Time) string {
	head := w.last.at.Local().Format("15:04:05") + ", every " + text.Period(WatchEvery)
	silence := now.Sub(w.last.at)
	if w.why == "" && silence < 2*WatchEvery {
		return head
	}
	head += ", no answer for " + text.Span(silence)
	if w.why != "" {
		head += ": " + w.why
	}
	return head
}

func linesOf(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
