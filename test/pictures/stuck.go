package main

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// stick creates a queue that is stuck for several reasons at the same time: two tasks of a customer fill the slots of
// its key, one type is paused, and no worker takes another.
func (s *server) stick(ctx context.Context) error {
	for _, line := range []string{
		`pawl queue set mail --max-running 20`,
		`pawl queue set mail --for-each-key --max-running 2`,
		`for n in $(seq 24); do pawl enqueue mail.welcome "{\"to\":\"$n@example.com\"}" --queue mail --key acme; done`,
		`for n in $(seq 9); do pawl enqueue mail.digest "{\"week\":$n}" --queue mail --key globex; done`,
		`for n in $(seq 4); do pawl enqueue mail.invoice "{\"number\":$n}" --queue mail --key initech; done`,
		`pawl queue pause mail --type mail.digest --reason "the template is wrong" --actor lena@ops1`,
	} {
		if _, err := s.bash(ctx, line); err != nil {
			return err
		}
	}
	return s.background(ctx, `pawl work --type mail.welcome --type mail.digest --queue mail --concurrency 4 --drain-timeout 1s --grace 1s `+
		`--name web-1/4711 --exec 'sleep 300'`)
}

// photograph takes screenshots of a page, light and dark, as NAME-light.png and NAME-dark.png.
func photograph(ctx context.Context, s *server, page, name string) error {
	chromium, err := lookUp("chromium", "chromium-browser", "google-chrome")
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // the worker connects, and what the page shows of queues is some seconds old
	for scheme, theme := range []string{"dark", "light"} {
		to := name + "-" + theme + ".png"
		cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
			"--no-first-run", // #nosec G204 -- ours
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars",
			"--user-data-dir="+filepath.Join(s.dir, "chromium-"+theme), fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme),
			"--window-size=1200,1290", "--timeout=6000", "--screenshot="+to, "http://"+s.address+page)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("chromium: %w\n%s", err, out)
		}
		if err := shrink(to); err != nil {
			return err
		}
	}
	return nil
}

func lookUp(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %q is installed", names)
}

// mostBytes is the maximum size of a picture in the README.
const mostBytes = 150 << 10

// shrink rewrites a picture with a palette of its 256 most frequent colors: a page has few.
func shrink(path string) error {
	f, err := os.Open(path) // #nosec G304 -- just written
	if err != nil {
		return err
	}
	img, err := png.Decode(f)
	_ = f.Close()
	if err != nil {
		return err
	}
	small := image.NewPaletted(img.Bounds(), palette(img))
	draw.Draw(small, small.Bounds(), img, img.Bounds().Min, draw.Src)
	if f, err = os.Create(path); err != nil { // #nosec G304 -- the same
		return err
	}
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, small); err != nil {
		_ = f.Close()
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > mostBytes {
		err = fmt.Errorf("%s has %d bytes, %d are allowed", path, info.Size(), mostBytes)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// palette returns the most frequent colors of a picture. Similar ones count as one, so that shades of text leave room for others.
func palette(img image.Image) color.Palette {
	type bin struct {
		n    int
		most map[color.RGBA]int
	}
	bins := map[color.RGBA]*bin{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)
			key := color.RGBA{c.R &^ 7, c.G &^ 7, c.B &^ 7, 255}
			if bins[key] == nil {
				bins[key] = &bin{most: map[color.RGBA]int{}}
			}
			bins[key].n++
			bins[key].most[c]++
		}
	}
	return mostFrequent(bins, func(b *bin) (int, color.Color) {
		var best color.RGBA
		for c, n := range b.most {
			if n > b.most[best] || n == b.most[best] && less(c, best) {
				best = c
			}
		}
		return b.n, best
	})
}
