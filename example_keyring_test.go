package pawl_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/keyring"
)

// With a keyring, the broker stores payloads that it can't read. Programs with the key see no difference.
func Example_keyring() {
	addr, stop := broker()
	defer stop()
	secret := bytes.Repeat([]byte{7}, 32) // use a random one: pawl payload-key prints one
	keys, err := keyring.New(keyring.Config{Keys: []keyring.Key{{ID: "2026-11", Secret: secret}}})
	if err != nil {
		panic(err)
	}
	client, err := pawl.Dial(addr, pawl.DialOptions{Keyring: keys, Namespace: "default"})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	stranger, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer stranger.Close()

	ctx := context.Background()
	ref, err := client.Enqueue(ctx, Welcome{To: "a@example.com"})
	if err != nil {
		panic(err)
	}
	ours, err := client.Task(ctx, ref.ID)
	if err != nil {
		panic(err)
	}
	theirs, err := stranger.Task(ctx, ref.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(ours.Payload))
	fmt.Println(theirs.ContentType)
	// Output:
	// {"to":"a@example.com"}
	// application/vnd.pawl.encrypted; key=2026-11
}
