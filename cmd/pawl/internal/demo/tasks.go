package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/build"
	"image"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/pawltype"

	_ "image/gif"
	"image/jpeg"

	// formats of the pictures

	_ "image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"golang.org/x/image/draw"
)

const (
	thumbSide = 96
	// maxPixels keeps a picture that claims to be huge from exhausting memory.
	maxPixels = 200 << 20
)

// checksum is a task that computes a picture's SHA-256.
type checksum struct {
	Path string `json:"path"`
}

func (checksum) TaskType() string { return "picture.checksum" }
func (checksum) TaskOptions() []pawl.Option {
	return []pawl.Option{pawl.Queue("pictures"), pawl.Priority(pawltype.High)}
}

type checksumResult struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// thumbnail is a task that writes a small copy of a picture.
type thumbnail struct {
	Path string `json:"path"`
	Out  string `json:"out"`
}

func (thumbnail) TaskType() string           { return "picture.thumbnail" }
func (thumbnail) TaskOptions() []pawl.Option { return []pawl.Option{pawl.Queue("pictures")} }

type thumbnailResult struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// put is a task that uploads a picture to a store that is available only on the third attempt.
type put struct {
	Path string `json:"path"`
}

func (put) TaskType() string { return "store.put" }
func (put) TaskOptions() []pawl.Option {
	return []pawl.Option{pawl.Queue("store"), pawl.Retry(pawltype.RetryPolicy{Initial: 200 * time.Millisecond, Factor: 1.5,
		Max: time.Second})}
}

// putFailures is the number of attempts for which the store is unavailable.
const putFailures = 2

// publish is a task that copies a thumbnail into an album, which must exist.
type publish struct {
	Thumb string `json:"thumb"`
	Album string `json:"album"`
}

func (publish) TaskType() string { return "album.publish" }
func (publish) TaskOptions() []pawl.Option {
	return []pawl.Option{pawl.Queue("pictures"), pawl.Priority(pawltype.Low)}
}

func (p publish) target() string { return filepath.Join(p.Album, filepath.Base(p.Thumb)) }

func (d *demo) thumbPath(i int) string { return filepath.Join(d.dir, "thumb-"+strconv.Itoa(i)+".jpeg") }
func (d *demo) albumPath() string      { return filepath.Join(d.dir, "album") }

// handlers returns the worker's handlers.
func (d *demo) handlers() *pawl.Mux {
	mux := pawl.NewMux()
	pawl.Handle(mux, func(_ context.Context, t *pawl.Task[checksum]) error {
		sum, err := sumOf(t.Args.Path)
		if err != nil {
			return err
		}
		return t.SetResult(sum)
	})
	pawl.Handle(mux, func(_ context.Context, t *pawl.Task[thumbnail]) error {
		size, err := shrink(t.Args.Path, t.Args.Out)
		if err != nil {
			return err
		}
		return t.SetResult(size)
	})
	pawl.Handle(mux, func(_ context.Context, t *pawl.Task[put]) error {
		if t.Attempt <= putFailures {
			return fmt.Errorf("store: connection reset by peer (attempt %d)", t.Attempt)
		}
		return nil
	})
	pawl.Handle(mux, func(_ context.Context, t *pawl.Task[publish]) error {
		data, err := os.ReadFile(t.Args.Thumb)
		if err != nil {
			return err
		}
		if err := os.WriteFile(t.Args.target(), data, 0o600); errors.Is(err, os.ErrNotExist) {
			return pawl.DeadLetter(err) // no retry will create the album
		} else if err != nil {
			return err
		}
		return nil
	})
	return mux
}

func sumOf(path string) (checksumResult, error) {
	f, err := os.Open(path)
	if err != nil {
		return checksumResult{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return checksumResult{SHA256: hex.EncodeToString(h.Sum(nil)), Bytes: n}, err
}

// readPicture decodes a picture. A damaged one stays damaged, so its error discards the task.
func readPicture(path string) (image.Image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err == nil && config.Width*config.Height > maxPixels {
		err = fmt.Errorf("%d×%d pixels are too many", config.Width, config.Height)
	}
	var img image.Image
	if err == nil {
		img, _, err = image.Decode(bytes.NewReader(data))
	}
	if err != nil {
		return nil, pawl.Discard(fmt.Errorf("%s: %w", filepath.Base(path), err))
	}
	return img, nil
}

// shrink writes a copy whose longer side is thumbSide pixels.
func shrink(path, out string) (thumbnailResult, error) {
	img, err := readPicture(path)
	if err != nil {
		return thumbnailResult{}, err
	}
	size := thumbnailSize(img.Bounds())
	small := image.NewRGBA(image.Rect(0, 0, size.Width, size.Height))
	draw.CatmullRom.Scale(small, small.Bounds(), img, img.Bounds(), draw.Src, nil)
	var b bytes.Buffer
	if err := jpeg.Encode(&b, small, nil); err != nil {
		return size, err
	}
	return size, os.WriteFile(out, b.Bytes(), 0o600)
}

func thumbnailSize(b image.Rectangle) thumbnailResult {
	longer := max(b.Dx(), b.Dy())
	return thumbnailResult{Width: max(1, b.Dx()*thumbSide/longer), Height: max(1, b.Dy()*thumbSide/longer)}
}

// verify checks the results on its own, without trusting the handlers.
func (d *demo) verify() error {
	sums, thumbs, puts, album := d.classes[0], d.classes[1], d.classes[2], d.classes[3]
	for i, path := range d.pictures {
		if err := errors.Join(verifySum(path, sums.tasks[i]), verifyThumb(path, d.thumbPath(i), thumbs.tasks[i]),
			verifyPut(puts.tasks[i])); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, t := range album.tasks {
		if err := verifyPublished(t); err != nil {
			return err
		}
	}
	if len(album.tasks) == 0 {
		album.note = "no picture could be read"
	}
	return nil
}

func verifySum(path string, t *pawltype.Task) error {
	var got checksumResult
	want, err := sumOf(path)
	if err = errors.Join(err, t.DecodeResult(&got)); err != nil {
		return err
	}
	if t.State != pawltype.StateSucceeded || got != want {
		return fmt.Errorf("checksum is %s with %+v, want %+v", t.State, got, want)
	}
	return nil
}

func verifyThumb(path, thumb string, t *pawltype.Task) error {
	img, err := readPicture(path)
	if err != nil {
		if t.State != pawltype.StateDiscarded {
			return fmt.Errorf("thumbnail of a damaged picture is %s: %w", t.State, err)
		}
		return nil
	}
	var result thumbnailResult
	if err := t.DecodeResult(&result); err != nil {
		return err
	}
	f, err := os.Open(thumb)
	if err != nil {
		return err
	}
	defer f.Close()
	got, format, err := image.DecodeConfig(f)
	if err != nil {
		return err
	}
	if want := thumbnailSize(img.Bounds()); result != want || got.Width != want.Width || got.Height != want.Height || format != "jpeg" {
		return fmt.Errorf("thumbnail is %s of %d×%d, task says %+v, want %+v", format, got.Width, got.Height, result, want)
	}
	return nil
}

func verifyPut(t *pawltype.Task) error {
	if t.State != pawltype.StateSucceeded || t.Failures != putFailures || len(t.AttemptLog) != putFailures+1 {
		return fmt.Errorf("put is %s after %d failures and %d attempts, want succeeded after %d and %d", t.State,
			t.Failures, len(t.AttemptLog), putFailures, putFailures+1)
	}
	return nil
}

func verifyPublished(t *pawltype.Task) error {
	var args publish
	if err := t.DecodePayload(&args); err != nil {
		return err
	}
	want, err1 := sumOf(args.Thumb)
	got, err2 := sumOf(args.target())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if t.State != pawltype.StateSucceeded || got != want || len(t.AttemptLog) != 2 || t.AttemptLog[0].Outcome != pawltype.OutcomeDead {
		return fmt.Errorf("task %s is %s after %d attempts, want succeeded after a dead letter and a replay", t.ID,
			t.State, len(t.AttemptLog))
	}
	return nil
}

// findPictures returns the named pictures, or those in Go's own tests.
func findPictures(args []string) ([]string, error) {
	if len(args) > 0 {
		return namedPictures(args)
	}
	root := build.Default.GOROOT
	if root == "" { // built with -trimpath
		out, _ := exec.Command("go", "env", "GOROOT").Output()
		root = strings.TrimSpace(string(out))
	}
	var found []string
	for _, pattern := range []string{"*.png", "*.jpeg", "*.gif"} {
		more, _ := filepath.Glob(filepath.Join(root, "src", "image", "testdata", pattern)) // the pattern is valid
		found = append(found, more...)
	}
	if root == "" || len(found) == 0 {
		return nil, errors.New("no Go installation with pictures was found: give some, as in 'pawl demo ~/Pictures/*.jpg'")
	}
	slices.Sort(found)
	return found, nil
}

func namedPictures(args []string) ([]string, error) {
	found := make([]string, len(args))
	for i, name := range args {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, cli.AsUsage(err)
		}
		if !info.Mode().IsRegular() {
			return nil, cli.Usage("%s is not a file", name)
		}
		found[i] = path
	}
	return found, nil
}
