package listen

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// Clients that ping as often as those of the SDKs are served, while others are disconnected.
func TestPings(t *testing.T) {
	for every, served := range map[time.Duration]bool{2 * time.Second: true, 1500 * time.Millisecond: true, 500 * time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			f := startWaiting(t, Config{}, false)
			defer f.waiting.Close()
			conn, err := f.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			frames := http2.NewFramer(conn, conn)
			if err := frames.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			go func() {
				for range 20 {
					time.Sleep(every)
					_ = frames.WritePing(false, [8]byte{})
				}
			}()
			answers := 0
			for answers < 20 {
				frame, err := frames.ReadFrame()
				if _, refused := frame.(*http2.GoAwayFrame); refused || err != nil {
					break
				}
				if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
					answers++
				}
			}
			if (answers == 20) != served {
				t.Errorf("pings every %s: %d of 20 were answered", every, answers)
			}
			time.Sleep(time.Minute)
		})
	}
}
