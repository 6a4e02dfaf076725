package pawl_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/pawlq/pawl"
)

// With a keyring the broker holds what it can't read; who has the key sees no difference.
func ExampleWithKeyring() {
	addr, stop := broker()
	defer stop()
	secret := bytes.Repeat([]byte{7}, 32) // yours is random: pawl payload-key prints one
	keys, err := pawl.NewKeyring(pawl.KeyringConfig{Keys: []pawl.PayloadKey{{ID: "2026-11", Secret: secret}}})
	if err != nil {
		panic(err)
	}
	client, err := pawl.Dial(addr, pawl.WithKeyring(keys), pawl.WithNamespace("default"))
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
