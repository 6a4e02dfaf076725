package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"strings"
	"time"
)

// The window of the recording.
const (
	columns, rows         = 108, 24
	charWidth, lineHeight = 7.8, 19.0 // at 13 px, in most monospaced fonts
	left, top             = 18.0, 52.0
	width                 = left*2 + columns*charWidth
	height                = top + rows*lineHeight + 10
	typing                = 0.035 // seconds per character
	reading               = 1.6   // after an output
	atTheEnd              = 6.0
)

// script is what the recording shows. Background commands have no output.
var script = []struct {
	command string
	wait    time.Duration // until its effect is visible
}{
	{command: `pawl enqueue mail.welcome '{"to":"a@example.com"}' --queue mail`},
	{command: `pawl queue explain mail`},
	{command: `pawl work --type mail.welcome --queue mail --exec ./send-mail.sh 2> work.log &`, wait: time.Second},
	{command: `pawl enqueue mail.welcome '{"to":"b@example.com"}' --queue mail --wait`},
	{command: `pawl enqueue mail.welcome '{"to":"nobody"}' --queue mail --max-attempts 1 --wait`},
	{command: `mv send-mail-2.sh send-mail.sh   # the fix`},
	{command: `pawl dlq replay --queue mail --yes`, wait: time.Second},
	{command: `pawl task ls --queue mail`},
}

const mailer = `#!/bin/sh
to=$(sed 's/.*"to":"\([^"]*\)".*/\1/')
case $to in
  *@*) echo "sent to $to" ;;
  *) echo "no such address: $to" >&2; exit 1 ;;
esac
`

// shown is a line of the recording, with the time at which it appears.
type shown struct {
	text    string
	at      float64
	command bool
	refused bool // an error
}

// record runs the script and writes the terminal session as an animation.
func record(ctx context.Context, s *server, to string) error {
	for name, text := range map[string]string{"send-mail.sh": mailer, "send-mail-2.sh": strings.Replace(mailer, "*@*", "*", 1)} {
		if err := os.WriteFile(s.dir+"/"+name, []byte(text), 0o700); err != nil { // #nosec G306 -- it is run
			return err
		}
	}
	var lines []shown
	now := 0.5
	for _, step := range script {
		lines = append(lines, shown{text: step.command, at: now, command: true})
		now += typing*float64(len(step.command)) + 0.3
		output, err := s.run(ctx, step.command)
		if err != nil {
			return err
		}
		time.Sleep(step.wait)
		for _, line := range wrapped(output) {
			lines = append(lines, shown{text: line, at: now, refused: strings.HasPrefix(output, "pawl:")})
		}
		now += reading
	}
	return os.WriteFile(to, []byte(animation(lines, now+atTheEnd)), 0o644) // #nosec G306 -- a picture for all
}

func (s *server) run(ctx context.Context, command string) (string, error) {
	if line, inBackground := strings.CutSuffix(command, " &"); inBackground {
		return "", s.background(ctx, line)
	}
	return s.bash(ctx, command)
}

// wrapped returns the lines of an output as a terminal shows them.
func wrapped(output string) (out []string) {
	for line := range strings.Lines(strings.TrimRight(output, "\n")) {
		text := []rune(strings.TrimRight(line, " \n"))
		for len(text) > columns {
			out = append(out, string(text[:columns]))
			text = text[columns:]
		}
		out = append(out, string(text))
	}
	return out
}

// animation returns an SVG without scripts: rows appear at their times, commands letter by letter, and it starts over
// at the end. For readers who prefer reduced motion, it shows the last screen only.
func animation(lines []shown, total float64) string {
	var style, body strings.Builder
	at := func(seconds float64) string { return fmt.Sprintf("%.2f%%", 100*seconds/total) }
	scroll := "0%{transform:translateY(0)}"
	for i, line := range lines {
		fmt.Fprintf(&style, "@keyframes l%d{0%%{opacity:0}%s{opacity:1}100%%{opacity:1}}\n", i, at(line.at))
		y := top + float64(i)*lineHeight
		text := html.EscapeString(line.text)
		if line.command {
			text = `<tspan class="p">$ </tspan><tspan class="c">` + text + `</tspan>`
		} else if line.refused {
			text = `<tspan class="e">` + text + `</tspan>`
		}
		fmt.Fprintf(&body, `<g class="l" style="animation-name:l%d"><text x="%g" y="%.1f" xml:space="preserve">%s</text>`, i, left, y, text)
		if line.command {
			n := len([]rune(line.text))
			fmt.Fprintf(&style, "@keyframes t%d{0%%,%s{transform:translateX(0);animation-timing-function:steps(%d,end)}%s,"+
				"100%%{transform:translateX(%.1fpx)}}\n",
				i, at(line.at), n, at(line.at+typing*float64(n)), float64(n)*charWidth)
			fmt.Fprintf(&body, `<rect class="t" style="animation-name:t%d" x="%.1f" y="%.1f" width="%g" height="%g"/>`, i, left+2*charWidth,
				y-14, width, lineHeight)
		}
		body.WriteString("</g>\n")
		if over := i + 1 - rows; over > 0 {
			scroll += fmt.Sprintf("%s{transform:translateY(%gpx)}", at(line.at), -float64(over)*lineHeight)
		}
	}
	end := -max(0, float64(len(lines)-rows)) * lineHeight
	return fmt.Sprintf(frame, width, height, width, height, total, total, total, scroll, end, style.String(), width, height,
		top-14, width, height-top+14, -(top - 14), end, body.String())
}

const frame = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-label="A terminal: a task is enqueued, explained, run, fails, and is replayed">
<style>
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;fill:#cbd5e1;white-space:pre}
.p{fill:#34d399}.c{fill:#f8fafc}.e{fill:#fca5a5}.t{fill:#0f172a}
.l{animation:%.2fs step-end infinite}
.t{animation:%.2fs infinite}
.s{animation:s %.2fs step-end infinite}
@keyframes s{%s100%%{transform:translateY(%gpx)}}
%s@media (prefers-reduced-motion:reduce){.l,.t,.s{animation:none}.t{display:none}}
</style>
<rect width="%g" height="%g" rx="10" fill="#0f172a"/>
<circle cx="22" cy="18" r="5.5" fill="#f87171"/><circle cx="40" cy="18" r="5.5" fill="#fbbf24"/><circle cx="58" cy="18" r="5.5" fill="#34d399"/>
<svg x="0" y="%g" width="%g" height="%g" overflow="hidden"><g transform="translate(0 %g)"><g class="s" style="transform:translateY(%gpx)">
%s</g></g></svg>
</svg>
`
