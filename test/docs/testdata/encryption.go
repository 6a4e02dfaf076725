package fragment

import (
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/keyring"
)

var (
	address string
	secret  []byte
)
