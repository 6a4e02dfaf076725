package route

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/client/convert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// addressList is the list of addresses given to Dial. gRPC connects to the first that answers, and stays there as long as the connection
// holds, even if the node says that it has no contact with its cluster. The list then moves the client on to the next address.
type addressList struct {
	resolver *manual.Resolver

	mu    sync.Mutex
	order []resolver.Address // in the order in which they are tried
	turn  int                // how often the client was moved on
}

// newAddressList shuffles the addresses, so that a cluster's clients spread over its nodes.
func newAddressList(all []resolver.Address) *addressList {
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	l := &addressList{resolver: manual.NewBuilderWithScheme("pawl"), order: all}
	l.resolver.InitialState(resolver.State{Addresses: all})
	return l
}

// options returns the options that make a connection use the list.
func (l *addressList) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithResolvers(l.resolver), grpc.WithChainUnaryInterceptor(l.unary),
		grpc.WithChainStreamInterceptor(l.stream)}
}

// now identifies the address in use, for moveOn.
func (l *addressList) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turn
}

// moveOn puts the first address last and leaves a connection to it, unless another call has done so since turn. Calls in flight there
// can finish. If the first address was unreachable and another one is in use, it takes one more call to leave that one.
func (l *addressList) moveOn(turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if turn != l.turn {
		return
	}
	l.turn++
	left := l.order[0]
	l.order = append(slices.Clone(l.order[1:]), left)
	l.resolver.UpdateState(resolver.State{Addresses: l.order[:len(l.order)-1]}) // without the address, or gRPC would stay
	l.resolver.UpdateState(resolver.State{Addresses: l.order})
}

func (l *addressList) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	turn := l.now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	if convert.NotReady(err) {
		l.moveOn(turn)
	}
	return err
}

func (l *addressList) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	turn := l.now()
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &listedStream{s, l, turn}, nil
}

// listedStream is a stream to an address of a list.
type listedStream struct {
	grpc.ClientStream
	list *addressList
	turn int
}

// RecvMsg implements grpc.ClientStream.
func (s *listedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*pawlv1.ProduceResponse); convert.NotReady(err) || err == nil && ok && notReady(r) {
		s.list.moveOn(s.turn)
	}
	return err
}
