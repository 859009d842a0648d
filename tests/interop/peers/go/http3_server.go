package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/quic-go/quic-go/http3"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func serveHTTP3(s settings, failed chan<- error) (net.Addr, error) {
	mux := http.NewServeMux()
	mux.Handle(service+"EmptyCall", connect.NewUnaryHandler(service+"EmptyCall", emptyCall))
	mux.Handle(service+"UnaryCall", connect.NewUnaryHandler(service+"UnaryCall", unaryCall))
	mux.Handle(service+"CacheableUnaryCall", connect.NewUnaryHandler(service+"CacheableUnaryCall", unaryCall,
		connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle(service+"StreamingOutputCall",
		connect.NewServerStreamHandler(service+"StreamingOutputCall", streamingOutputCall))
	mux.Handle(service+"StreamingInputCall",
		connect.NewClientStreamHandler(service+"StreamingInputCall", streamingInputCall))
	mux.Handle(service+"FullDuplexCall",
		connect.NewBidiStreamHandler(service+"FullDuplexCall", fullDuplexCall))
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	server := &http3.Server{Handler: mux, TLSConfig: http3.ConfigureTLSConfig(s.tls)}
	go func() { failed <- server.Serve(packets) }()
	return packets.LocalAddr(), nil
}

func emptyCall(context.Context, *connect.Request[pb.Empty]) (*connect.Response[pb.Empty], error) {
	return connect.NewResponse(&pb.Empty{}), nil
}

func echoMetadata(from, header, trailer http.Header) {
	if value := from.Get(initialKey); value != "" {
		header.Set(initialKey, value)
	}
	if value := from.Get(trailingKey); value != "" {
		trailer.Set(trailingKey, value)
	}
}

func asked(status *pb.EchoStatus) error {
	if status.GetCode() == 0 {
		return nil
	}
	return connect.NewError(connect.Code(status.Code), errors.New(status.Message))
}

func unaryCall(_ context.Context, r *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
	if err := asked(r.Msg.ResponseStatus); err != nil {
		return nil, err
	}
	response := connect.NewResponse(&pb.SimpleResponse{Payload: payload(int(r.Msg.ResponseSize))})
	echoMetadata(r.Header(), response.Header(), response.Trailer())
	return response, nil
}

func respond(ctx context.Context, r *pb.StreamingOutputCallRequest,
	send func(*pb.StreamingOutputCallResponse) error) error {
	for _, wanted := range r.ResponseParameters {
		if wanted.IntervalUs > 0 {
			select {
			case <-time.After(time.Duration(wanted.IntervalUs) * time.Microsecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := send(&pb.StreamingOutputCallResponse{Payload: payload(int(wanted.Size))}); err != nil {
			return err
		}
	}
	return nil
}

func streamingOutputCall(ctx context.Context, r *connect.Request[pb.StreamingOutputCallRequest],
	stream *connect.ServerStream[pb.StreamingOutputCallResponse]) error {
	return respond(ctx, r.Msg, stream.Send)
}

func streamingInputCall(_ context.Context, stream *connect.ClientStream[pb.StreamingInputCallRequest]) (
	*connect.Response[pb.StreamingInputCallResponse], error) {
	var total int
	for stream.Receive() {
		total += len(stream.Msg().GetPayload().GetBody())
	}
	if stream.Err() != nil {
		return nil, stream.Err()
	}
	return connect.NewResponse(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(total)}), nil
}

func fullDuplexCall(ctx context.Context,
	stream *connect.BidiStream[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	echoMetadata(stream.RequestHeader(), stream.ResponseHeader(), stream.ResponseTrailer())
	for {
		request, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := asked(request.ResponseStatus); err != nil {
			return err
		}
		if err := respond(ctx, request, stream.Send); err != nil {
			return err
		}
	}
}
