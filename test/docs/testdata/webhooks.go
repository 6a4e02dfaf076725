package fragment

import (
	"io"
	"log"
	"net/http"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

var (
	secret string
	notify func(id string, body []byte)
)
