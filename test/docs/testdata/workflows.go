package fragment

import (
	"context"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

type Fetch struct{ URL string }

func (Fetch) TaskType() string { return "fetch" }

type Fetched struct{ Path string }

type Resize struct{ Width int }

func (Resize) TaskType() string { return "resize" }

type Mail struct{}

func (Mail) TaskType() string { return "mail" }

type Log struct{}

func (Log) TaskType() string { return "log" }

type Part struct{ Number int }

func (Part) TaskType() string { return "part" }

type Report struct{}

func (Report) TaskType() string { return "report" }

type Alarm struct{}

func (Alarm) TaskType() string { return "alarm" }

var (
	ctx    context.Context
	client *pawl.Client
	mux    *pawl.Mux
	url    string
	total  int
	resize func(ctx context.Context, path string, width int) error
)
