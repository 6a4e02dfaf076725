// Command thumbnails makes thumbnails and checksums of pictures with Pawl, in one process, as an example to copy from.
//
//	go run ./examples/thumbnails [-out DIR] [PICTURE...]
//
// Without pictures it uses those that come with Go for its own tests. The broker keeps its data in DIR/pawl-data: stop the program
// half-way, start it again, and it continues where it was.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"image"

	_ "image/gif"
	"image/jpeg"

	_ "image/png"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/embedded"
	"golang.org/x/image/draw"
)

// Thumbnail is the payload of a task.
type Thumbnail struct {
	Picture string `json:"picture"`
	Out     string `json:"out"`
}

// Made is the result of a task.
type Made struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	SHA256 string `json:"sha256"` // of the picture
}

// TaskType returns the name of the task type.
func (Thumbnail) TaskType() string { return "thumbnail" }

// TaskOptions returns the options of every Thumbnail: up to three attempts, with short pauses.
func (Thumbnail) TaskOptions() []pawl.Option {
	return []pawl.Option{pawl.MaxAttempts(3), pawl.Retry(pawl.RetryPolicy{Initial: time.Second}), pawl.Timeout(time.Minute)}
}

// makeThumbnail is the handler.
func makeThumbnail(_ context.Context, t *pawl.Task[Thumbnail]) error {
	data, err := os.ReadFile(t.Args.Picture)
	if err != nil {
		return err // retried; a dead letter after three attempts
	}
	f, err := os.Open(t.Args.Picture)
	if err != nil {
		return err
	}
	defer f.Close()
	img, _, err := image.Decode(f)
	if err != nil {
		return pawl.DeadLetter(fmt.Errorf("damaged picture: %w", err)) // no retry can help: someone should look at it
	}
	b := img.Bounds()
	longer := max(b.Dx(), b.Dy())
	small := image.NewRGBA(image.Rect(0, 0, max(1, b.Dx()*200/longer), max(1, b.Dy()*200/longer)))
	draw.CatmullRom.Scale(small, small.Bounds(), img, b, draw.Src, nil)
	out, err := os.Create(t.Args.Out)
	if err != nil {
		return err
	}
	if err := errors.Join(jpeg.Encode(out, small, nil), out.Close()); err != nil {
		return err
	}
	return t.SetResult(Made{Width: small.Rect.Dx(), Height: small.Rect.Dy(), SHA256: fmt.Sprintf("%x", sha256.Sum256(data))})
}

func main() {
	dir := flag.String("out", "thumbnails", "directory for the thumbnails and for the broker's data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string, pictures []string) error {
	if len(pictures) == 0 {
		pictures, _ = filepath.Glob(filepath.Join(build.Default.GOROOT, "src/image/testdata/*.*"))
	}
	broker, err := embedded.Open(filepath.Join(dir, "pawl-data"), embedded.Options{})
	if err != nil {
		return err
	}
	defer broker.Close(context.WithoutCancel(ctx))
	client := broker.Client()

	mux := pawl.NewMux()
	pawl.Handle(mux, makeThumbnail)
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 4}).Run(working) }()

	err = enqueueAll(ctx, client, dir, pictures)
	stop()
	return errors.Join(err, <-worked)
}

// enqueueAll enqueues a task for each picture, and prints how each ended. With the idempotency key, a picture that was done today, in
// this run or an earlier one, is not done again.
func enqueueAll(ctx context.Context, client *pawl.Client, dir string, pictures []string) error {
	refs := make([]*pawl.Ref, len(pictures))
	for i, name := range pictures {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		task := Thumbnail{Picture: path, Out: filepath.Join(dir, filepath.Base(path)+".thumb.jpeg")}
		if refs[i], err = client.Enqueue(ctx, task, pawl.IdempotencyKey(path)); err != nil {
			return err
		}
	}
	for i, ref := range refs {
		var made Made
		err := ref.Result(ctx, &made)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Printf("%-45s %v\n", filepath.Base(pictures[i]), err)
			continue
		}
		fmt.Printf("%-45s %d×%d  sha256 %.12s…\n", filepath.Base(pictures[i]), made.Width, made.Height, made.SHA256)
	}
	return nil
}
