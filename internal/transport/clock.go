package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const (
	// pingEvery is how often each peer is asked for its time. pingWait is how long it may take to answer before all connections
	// to it are cut: a silent peer is detected within their sum.
	pingEvery = 2 * time.Second
	pingWait  = keepaliveWait
	// clockSamples is how many pings an estimate is chosen from, and clockFresh is the maximum age of the last one.
	clockSamples = 8
	clockFresh   = 10 * time.Second
)

// Offset returns how far a member's wall clock is ahead of ours, according to the fastest of the last pings. The error is at
// most half of that round trip. ok is false if the member hasn't answered for 10 s.
func (t *Transport) Offset(number uint32) (offset, roundTrip time.Duration, ok bool) {
	p, err := t.peer(number)
	if err != nil {
		return 0, 0, false
	}
	return p.clock.estimate(time.Now())
}

// clock estimates the offset of a peer's wall clock from ours. Its zero value is ready to use.
type clock struct {
	mu      sync.Mutex
	samples []sample  // the latest ones, oldest first
	heard   time.Time // when the latest one arrived, by the monotonic clock
}

type sample struct{ offset, roundTrip time.Duration }

// add adds a ping. A ping that contradicts earlier ones shows that a clock was set, so those are dropped.
func (c *clock) add(now time.Time, s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.samples {
		if (s.offset - old.offset).Abs() > (s.roundTrip+old.roundTrip)/2 {
			c.samples = nil
			break
		}
	}
	if len(c.samples) == clockSamples {
		c.samples = append(c.samples[:0], c.samples[1:]...)
	}
	c.samples = append(c.samples, s)
	c.heard = now
}

func (c *clock) estimate(now time.Time) (offset, roundTrip time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.samples) == 0 || now.Sub(c.heard) > clockFresh {
		return 0, 0, false
	}
	best := c.samples[0]
	for _, s := range c.samples[1:] {
		if s.roundTrip <= best.roundTrip {
			best = s
		}
	}
	return best.offset, best.roundTrip, true
}

// pingLoop pings the peer until the peer is closed.
func (p *peer) pingLoop() {
	var down bool // and logged as such
	for {
		switch err := p.ping(); {
		case p.ctx.Err() != nil:
			return
		case err == nil && down:
			p.t.cfg.Logger.Info("a peer can be reached again", "peer", p.at.Name, "number", p.number, "address", p.at.Address)
			down = false
		case err != nil && !p.t.noteRefusal(err, p.number, p.at) && p.t.logLimit.allow("down "+p.at.Name+" "+p.at.Address):
			p.t.cfg.Logger.Warn("a peer can't be reached", "peer", p.at.Name, "number", p.number, "address", p.at.Address, "error", err)
			down = true
		}
		if !p.pause(pingEvery) {
			return
		}
	}
}

func (p *peer) ping() error {
	ctx, cancel := context.WithTimeout(p.ctx, pingWait)
	defer cancel()
	out, in := frame{kind: kindBody}, frame{}
	began := time.Now()
	err := p.small.cc.Invoke(p.t.withIdentity(ctx, p.number, ""), methodPing, &out, &in)
	if err != nil && ctx.Err() != nil && p.ctx.Err() == nil {
		p.cutLinks(out.left)
	}
	if err != nil {
		return outcome(ctx, err, out.left)
	}
	now, wall := time.Now(), p.t.cfg.Wall()
	if len(in.body) != 8 {
		return fmt.Errorf("answer to a ping has %d bytes, want 8", len(in.body))
	}
	roundTrip := now.Sub(began)
	theirs := time.Unix(0, int64(binary.BigEndian.Uint64(in.body)))
	p.clock.add(now, sample{offset: theirs.Sub(wall.Add(-roundTrip / 2)), roundTrip: roundTrip})
	return nil
}

func (t *Transport) servePing(_ incoming, s grpc.ServerStream) error {
	if err := s.RecvMsg(new(frame)); err != nil {
		return err
	}
	return s.SendMsg(&frame{kind: kindBody, body: binary.BigEndian.AppendUint64(nil, uint64(t.cfg.Wall().UnixNano()))})
}
