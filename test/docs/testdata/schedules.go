package fragment

import (
	"context"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

type Report struct{ Kind string }

func (Report) TaskType() string { return "report" }

var (
	ctx    context.Context
	client *pawl.Client
)
