package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

type grpcCase = func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)

// The cases themselves are grpc-go's; they end the process when they fail.
var grpcCases = map[string]grpcCase{
	"empty_unary":                 interop.DoEmptyUnaryCall,
	"large_unary":                 interop.DoLargeUnaryCall,
	"client_streaming":            interop.DoClientStreaming,
	"server_streaming":            interop.DoServerStreaming,
	"ping_pong":                   interop.DoPingPong,
	"empty_stream":                interop.DoEmptyStream,
	"timeout_on_sleeping_server":  interop.DoTimeoutOnSleepingServer,
	"cancel_after_begin":          interop.DoCancelAfterBegin,
	"cancel_after_first_response": interop.DoCancelAfterFirstResponse,
	"status_code_and_message":     interop.DoStatusCodeAndMessage,
	"special_status_message":      interop.DoSpecialStatusMessage,
	"custom_metadata":             interop.DoCustomMetadata,
}

func callGRPC(ctx context.Context, s settings, address, name string) error {
	options := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(s.tls))}
	if s.over == "stream" {
		options = []grpc.DialOption{
			// QUIC has encrypted the stream already.
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dialStream(ctx, address, s.tls)
			}),
		}
	}
	connection, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return err
	}
	defer connection.Close()
	client := testgrpc.NewTestServiceClient(connection)
	if run, ok := grpcCases[name]; ok {
		run(ctx, client)
		return nil
	}
	switch name {
	case "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, connection)
	case "unimplemented_service":
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(connection))
	case "client_compressed_unary":
		interop.DoLargeUnaryCall(ctx, client, grpc.UseCompressor("gzip"))
	case "client_compressed_streaming":
		interop.DoClientStreaming(ctx, client, grpc.UseCompressor("gzip"))
	default:
		return fmt.Errorf("grpc-go has no case %q", name)
	}
	return nil
}

func serveGRPC(s settings, failed chan<- error) (net.Addr, error) {
	var listener net.Listener
	var options []grpc.ServerOption
	var err error
	if s.over == "stream" {
		listener, err = listenStreams(s.tls)
	} else {
		options = append(options, grpc.Creds(credentials.NewTLS(s.tls)))
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	go func() { failed <- server.Serve(listener) }()
	return listener.Addr(), nil
}
