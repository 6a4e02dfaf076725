package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
)

// serveLists answers each call with one empty item and a cursor, until the test ends.
func serveLists(t *testing.T, cursor *string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		name, _ := grpc.MethodFromServerStream(stream)
		answer, err := onePage(protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")), *cursor)
		if err != nil {
			return err
		}
		return stream.SendMsg(answer)
	}))
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// onePage is an answer of a method that lists.
func onePage(method protoreflect.FullName, cursor string) (proto.Message, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(method)
	if err != nil {
		return nil, err
	}
	answer, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	m := answer.New()
	item := m.Mutable(m.Descriptor().Fields().ByName("items")).List().AppendMutable().Message()
	if task := item.Descriptor().Fields().ByName("task"); task != nil {
		item.Mutable(task)
	}
	m.Set(m.Descriptor().Fields().ByName("next_cursor"), protoreflect.ValueOfString(cursor))
	return m.Interface(), nil
}

// listsOf gives the command lines of all lists that have pages.
func listsOf(cmd *cobra.Command) (lines []string) {
	for _, sub := range cmd.Commands() {
		lines = append(lines, listsOf(sub)...)
	}
	_, line, _ := strings.Cut(cmd.CommandPath(), " ")
	if cmd.Flags().Lookup("limit") == nil || cmd.Flags().Lookup("cursor") == nil || line == "events" { // which go on for ever
		return lines
	}
	const id = " 0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77"
	return append(lines, line+map[string]string{"dlq ls": " --queue mail", "group members": id, "schedule history": " nightly"}[line])
}

// TestListsTellOfMore: each table says beside it how to go on, if there are more rows. Programs read that from the list itself.
func TestListsTellOfMore(t *testing.T) {
	lists := listsOf(newRoot(&app{&cli.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}))
	if len(lists) < 16 {
		t.Errorf("there are only %d lists: %q", len(lists), lists)
	}
	var cursor string
	server := serveLists(t, &cursor)
	for _, list := range lists {
		for _, c := range []struct{ cursor, format, want string }{
			{"abc", "table", "there are more: --limit, or --cursor abc\n"},
			{"", "table", ""},
			{"abc", "json", ""},
		} {
			cursor = c.cursor
			var out, said bytes.Buffer
			exit := run(append(strings.Fields(list), "--limit", "1", "-o", c.format, "--server", server), strings.NewReader(""), &out, &said)
			if exit != cli.ExitDone || said.String() != c.want {
				t.Errorf("pawl %s -o %s, next cursor %q: status %d, said %q, want %q", list, c.format, c.cursor, exit, said.String(), c.want)
			}
		}
	}
}
