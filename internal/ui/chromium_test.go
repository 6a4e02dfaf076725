package ui_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium, controlled through a pipe by the DevTools protocol: JSON objects, each followed by a zero byte, in both
// directions. It has a page of the running test, and records its requests and errors.
type browser struct {
	t      testing.TB
	out    *os.File
	silent bool          // it once failed to answer, or has ended
	opened int           // pages so far
	end    func()        // stops it
	gone   chan struct{} // closed when it has ended

	writing  sync.Mutex // to out
	mu       sync.Mutex // guards what follows
	session  string     // that of the page
	last     int
	waiting  map[int]chan answer
	loaded   chan struct{}
	requests []string
	trouble  []string
}

type answer struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// flags keep Chromium from making requests of its own, from keeping each page that was left in a process of its own, and from slowing
// down pages that no user looks at.
var flags = []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
	"--font-render-hinting=none", "--disable-back-forward-cache",
	"--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
	"--remote-debugging-pipe"}

// racy is the test that uses a browser in short mode too, which is for finding data races: its pages are open while
// their data changes. In the others, a request shares nothing with another.
const racy = "TestPagesFollow"

// shared is the browser of all tests, which run one after another. Starting one takes longer than most of them.
var shared *browser

func TestMain(m *testing.M) {
	m.Run()
	retire()
}

// retire ends the shared browser: the next test starts another.
func retire() {
	if shared != nil {
		shared.end()
		shared = nil
	}
}

// startBrowser returns the browser with a page for the test, which shares no cookies, storage and settings with the pages of others. It
// skips the test if Chromium is not installed, and most tests in short mode.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	return openPage(t, map[string]any{})
}

// startHidden is startBrowser for tests that read pages and fill in forms. Their page is in no window, whose drawing takes more than half
// of the CPU time of a visit.
func startHidden(t testing.TB) *browser {
	t.Helper()
	b := openPage(t, map[string]any{"hidden": true, "background": true})
	b.call("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	return b
}

// openPage opens a page that is closed when the test ends.
func openPage(t testing.TB, target map[string]any) *browser {
	t.Helper()
	if testing.Short() && t.Name() != racy {
		t.Skip("short mode: only " + racy + " uses a browser")
	}
	if shared != nil && (shared.silent || shared.opened == mostPages) {
		retire()
	}
	if shared == nil {
		shared = launch(t)
	}
	shared.t, shared.opened = t, shared.opened+1
	shared.open(target)
	return shared
}

// mostPages is how many tests share a browser, so that leftovers of one reach few others.
const mostPages = 8

// launches is the maximum number of attempts.
const launches = 3

// launch starts a Chromium. On a busy machine it may take very long to start, or never start: then launch tries another.
func launch(t testing.TB) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if at, err := exec.LookPath(name); err == nil {
			path = at
			break
		}
	}
	if path == "" {
		t.Skip("Chromium is not installed, so pages are not tested (make tools installs Debian's)")
	}
	for try := 1; ; try++ {
		b := start(t, path)
		var version struct{ Product string }
		err := b.try("Browser.getVersion", nil, &version)
		if err == nil {
			return b
		}
		b.end()
		if try == launches {
			t.Fatalf("Chromium did not start, the last attempt within %s: %v", browserTime, err)
		}
	}
}

func start(t testing.TB, path string) *browser {
	t.Helper()
	fromUs, out, err := os.Pipe()
	must(t, err)
	in, toUs, err := os.Pipe()
	must(t, err)
	dir, err := os.MkdirTemp("", "pawl-chromium-") // not t.TempDir: Chromium's children may still write to it after it has ended
	must(t, err)
	cmd := exec.Command(path, append(flags, "--user-data-dir="+dir, "about:blank")...)
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // 3 and 4
	must(t, cmd.Start())
	_, _ = fromUs.Close(), toUs.Close()
	b := &browser{out: out, waiting: map[int]chan answer{}, loaded: make(chan struct{}, 16), gone: make(chan struct{})}
	b.end = func() {
		if b.silent || b.try("Browser.close", nil, nil) != nil {
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		_, _ = out.Close(), in.Close()
		_ = os.RemoveAll(dir)
	}
	go b.listen(in)
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen returns when Chromium ends.
func (b *browser) listen(in *os.File) {
	defer close(b.gone)
	r := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(line[:len(line)-1], &a) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[a.ID]; a.ID != 0 && c != nil {
			delete(b.waiting, a.ID)
			c <- a
		} else if a.Session == b.session {
			b.note(a)
		}
		b.mu.Unlock()
	}
}

// note records what a page did. The caller holds mu.
func (b *browser) note(a answer) {
	var p struct {
		Request          struct{ URL string }
		Entry            struct{ Level, Text, URL, Source string }
		Type             string
		Args             []struct{ Value any }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	_ = json.Unmarshal(a.Params, &p)
	switch a.Method {
	case "Page.loadEventFired":
		select {
		case b.loaded <- struct{}{}:
		default:
		}
	case "Network.requestWillBeSent":
		b.requests = append(b.requests, p.Request.URL)
	case "Log.entryAdded":
		// A refused form or a missing page is a regular response rather than an error.
		if p.Entry.Level == "error" && !(p.Entry.Source == "network" && strings.Contains(p.Entry.Text, "status of 4")) {
			b.trouble = append(b.trouble, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "assert" {
			b.trouble = append(b.trouble, fmt.Sprint("console: ", p.Args))
		}
	case "Runtime.exceptionThrown":
		b.trouble = append(b.trouble, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	}
}

// browserTime limits any operation of the browser. It measures nothing, but ends operations that hang.
const browserTime = time.Minute

func (b *browser) try(method string, params map[string]any, result any) error {
	c := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = c
	msg := map[string]any{"id": id, "method": method, "params": params}
	if b.session != "" {
		msg["sessionId"] = b.session
	}
	b.mu.Unlock()
	data, err := json.Marshal(msg)
	if err == nil {
		b.writing.Lock() // not mu, which listen needs to read on: Chromium reads no more while it can't write
		_ = b.out.SetWriteDeadline(time.Now().Add(browserTime))
		_, err = b.out.Write(append(data, 0))
		b.writing.Unlock()
	}
	if err != nil {
		b.silent = true
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), browserTime)
	defer cancel()
	select {
	case <-b.gone:
		b.silent = true
		return errors.New(method + ": Chromium has ended")
	case a := <-c:
		if a.Error != nil {
			return errors.New(method + ": " + a.Error.Message)
		}
		if result != nil {
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-ctx.Done():
		b.silent = true
		return errors.New(method + ": no answer from Chromium")
	}
}

func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) open(target map[string]any) {
	b.t.Helper()
	var context struct{ BrowserContextID string }
	b.call("Target.createBrowserContext", nil, &context)
	target["url"], target["browserContextId"] = "about:blank", context.BrowserContextID
	var page struct{ TargetID string }
	b.call("Target.createTarget", target, &page)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": page.TargetID, "flatten": true}, &attached)
	b.attach(attached.SessionID)
	b.t.Cleanup(func() {
		b.attach("")
		if !b.silent {
			_ = b.try("Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID}, nil)
		}
	})
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	b.size(1440, 900, false)
}

// attach makes calls and records be those of another page, or of none.
func (b *browser) attach(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.requests, b.trouble = session, nil, nil
}

// size sets the size of the window.
func (b *browser) size(width, height int, phone bool) {
	scale := 1.0
	if phone {
		scale = 2
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": scale,
		"mobile": phone},
		nil)
}

// dark sets the system's color scheme.
func (b *browser) dark(is bool) {
	value := "light"
	if is {
		value = "dark"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": value},
		{"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// visit loads a URL.
func (b *browser) visit(url string) {
	b.t.Helper()
	b.loading(func() { b.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// inject makes a script run before those of each page, until undo is called.
func (b *browser) inject(js string) (undo func()) {
	b.t.Helper()
	var script struct{ Identifier string }
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": js}, &script)
	return func() {
		b.call("Page.removeScriptToEvaluateOnNewDocument", map[string]any{"identifier": script.Identifier}, nil)
	}
}

// loading does something that leads to another page, and waits until that page is loaded.
func (b *browser) loading(do func()) {
	b.t.Helper()
	for len(b.loaded) > 0 {
		<-b.loaded
	}
	do()
	select {
	case <-b.loaded:
	case <-time.After(browserTime):
		b.shoot("no-page")
		b.t.Fatalf("no page was loaded, at %s", b.eval("location.href + ' ' + document.body.innerText.slice(0, 800)"))
	}
}

// eval returns the value of an expression, which may be a promise, as text.
func (b *browser) eval(js string) string {
	b.t.Helper()
	got, err := b.tryEval(js)
	must(b.t, err)
	return got
}

func (b *browser) tryEval(js string) (string, error) {
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := b.try("Runtime.evaluate", map[string]any{"expression": js, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &r)
	if err == nil && r.ExceptionDetails != nil {
		err = fmt.Errorf("%s: %s %s", js, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(r.Result.Value), err
}

// until waits until an expression is true.
func (b *browser) until(js string) {
	b.t.Helper()
	look := `new Promise((done) => { const end = performance.now() + 45000; const look = () => { let is = false; try { is = ` + js +
		`; } catch (e) { } if (is) done("yes"); else if (performance.now() > end) done("no"); else setTimeout(look, 20); }; look(); })`
	got, err := b.tryEval(look)
	for tries := 0; err != nil && tries < cap(b.loaded); tries++ { // the page was replaced meanwhile: wait for the next one
		select {
		case <-b.loaded:
		case <-time.After(browserTime):
		}
		got, err = b.tryEval(look)
	}
	if got != "yes" {
		b.shoot("until")
		b.t.Fatalf("%s did not become true, at %s", js, b.eval("location.href + ' ' + document.body.innerText.slice(0, 800)"))
	}
}

// click clicks on the element that matches a selector, as a user would: nothing may cover it. If it is in a menu, click
// opens the menu first.
func (b *browser) click(selector string) {
	b.t.Helper()
	found := fmt.Sprintf("document.querySelector(%q)", selector)
	if b.eval(`String(`+found+`?.closest("details.pop:not([open]) .pop-list") != null)`) == "true" {
		b.press(found + `.closest("details.pop").querySelector("summary")`)
	}
	b.press(found)
}

// press clicks on the element that an expression returns.
func (b *browser) press(found string) {
	b.t.Helper()
	at := b.eval(`(() => { const e = ` + found + `; if (!e) return ""; e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2, top = document.elementFromPoint(x, y);
		return e.contains(top) || top?.contains(e) ? x + " " + y : "under " + top?.outerHTML.slice(0, 200); })()`)
	var x, y float64
	if _, err := fmt.Sscan(at, &x, &y); err != nil {
		b.shoot("click")
		b.t.Fatalf("%s can't be clicked (%s) at %s", found, at, b.eval("location.href + ' ' + document.body.innerText.slice(0, 500)"))
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, nil)
	}
}

// fill sets a field of a form.
func (b *browser) fill(name, value string) {
	b.t.Helper()
	got := b.eval(fmt.Sprintf(`(() => { const e = document.querySelector('dialog[open] [name=%[1]q], #live [name=%[1]q]'); if (!e) return "no"; if (e.type === "checkbox") { for (const c of e.form.elements[%[1]q].length ? e.form.elements[%[1]q] : [e]) c.checked = %[2]s.split(",").includes(c.value); return "yes"; } e.value = %[2]s;
		e.dispatchEvent(new Event("input", {bubbles: true})); return "yes"; })()`, name, jsString(value)))
	if got != "yes" {
		b.t.Fatalf("no field %q in the form at %s", name, b.eval("location.href"))
	}
}

func jsString(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// key presses a key.
func (b *browser) key(key string) {
	b.t.Helper()
	down := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		down["text"] = key
	}
	if key == "Enter" { // without a text it doesn't submit a form
		down["text"] = "\r"
	}
	if code := map[string]int{"Escape": 27, " ": 32, "Enter": 13}[key]; code != 0 {
		down["windowsVirtualKeyCode"] = code
	}
	b.call("Input.dispatchKeyEvent", down, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// shots is the directory for screenshots, PAWL_SHOTS. If it is empty, none are taken.
func shots() string { return os.Getenv("PAWL_SHOTS") }

// shoot takes a screenshot of the visible part of the page.
func (b *browser) shoot(name string) {
	if shots() == "" {
		return
	}
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	must(b.t, err)
	must(b.t, os.MkdirAll(shots(), 0o755))
	must(b.t, os.WriteFile(filepath.Join(shots(), name+".png"), data, 0o644))
}

// longestShot is the maximum height of a screenshot.
const longestShot = 3200

// shootWhole takes a screenshot of the whole page, up to longestShot.
func (b *browser) shootWhole(name string, width int) {
	var height int
	_, err := fmt.Sscan(b.eval(`document.documentElement.scrollHeight`), &height)
	must(b.t, err)
	b.size(width, min(max(height, 844), longestShot), width < 500)
	b.shoot(name)
}

// noted returns the requests and errors since the last call.
func (b *browser) noted() (requests, trouble []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, trouble = b.requests, b.trouble
	b.requests, b.trouble = nil, nil
	return requests, trouble
}
