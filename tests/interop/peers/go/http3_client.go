package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/quic-go/quic-go/http3"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

const service = "/grpc.testing.TestService/"

type (
	unaryClient  = connect.Client[pb.SimpleRequest, pb.SimpleResponse]
	outputClient = connect.Client[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]
	inputClient  = connect.Client[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]
	emptyClient  = connect.Client[pb.Empty, pb.Empty]
)

// caller makes connect-go's clients of single methods.
type caller struct {
	http    *http.Client
	base    string
	options []connect.ClientOption
}

func (c caller) unary(method string, more ...connect.ClientOption) *unaryClient {
	return connect.NewClient[pb.SimpleRequest, pb.SimpleResponse](
		c.http, c.base+method, append(more, c.options...)...)
}

func (c caller) output(method string) *outputClient {
	return connect.NewClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse](
		c.http, c.base+method, c.options...)
}

func (c caller) input() *inputClient {
	return connect.NewClient[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse](
		c.http, c.base+"StreamingInputCall", c.options...)
}

func (c caller) empty(method string) *emptyClient {
	return connect.NewClient[pb.Empty, pb.Empty](c.http, c.base+method, c.options...)
}

func callHTTP3(ctx context.Context, s settings, address, name string) error {
	transport := &http3.Transport{TLSClientConfig: s.tls}
	defer transport.Close()
	c := caller{http: &http.Client{Transport: onlyHTTP3{transport}}, base: "https://" + address + service}
	switch s.protocol {
	case "grpc":
		c.options = append(c.options, connect.WithGRPC())
	case "grpcweb":
		c.options = append(c.options, connect.WithGRPCWeb())
	}
	if s.json {
		c.options = append(c.options, connect.WithProtoJSON())
	}
	run, ok := http3Cases[name]
	if !ok {
		return fmt.Errorf("there is no case %q over HTTP/3", name)
	}
	return run(ctx, c)
}

// onlyHTTP3 proves what every response came over.
type onlyHTTP3 struct{ *http3.Transport }

func (t onlyHTTP3) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(request)
	if err == nil && response.ProtoMajor != 3 {
		return nil, fmt.Errorf("a response came over %s", response.Proto)
	}
	return response, err
}

var http3Cases = map[string]func(context.Context, caller) error{
	"empty_unary":                 emptyUnary,
	"large_unary":                 func(ctx context.Context, c caller) error { return largeUnary(ctx, c.unary("UnaryCall")) },
	"client_compressed_unary":     compressedUnary,
	"cacheable_unary":             cacheableUnary,
	"client_streaming":            clientStreaming,
	"server_streaming":            serverStreaming,
	"ping_pong":                   pingPong,
	"empty_stream":                emptyStream,
	"custom_metadata":             customMetadata,
	"status_code_and_message":     statusCodeAndMessage,
	"special_status_message":      specialStatusMessage,
	"unimplemented_method":        func(ctx context.Context, c caller) error { return unimplemented(ctx, c) },
	"unimplemented_service":       unimplementedService,
	"cancel_after_begin":          cancelAfterBegin,
	"cancel_after_first_response": cancelAfterFirstResponse,
	"timeout_on_sleeping_server":  timeoutOnSleepingServer,
}

func payload(size int) *pb.Payload { return &pb.Payload{Body: make([]byte, size)} }

func expectBody(got *pb.Payload, size int) error {
	if !bytes.Equal(got.GetBody(), make([]byte, size)) {
		return fmt.Errorf("wanted %d zero bytes, got %d bytes", size, len(got.GetBody()))
	}
	return nil
}

func expectCode(err error, code connect.Code) error {
	if err == nil || connect.CodeOf(err) != code {
		return fmt.Errorf("wanted the code %v, got %v", code, err)
	}
	return nil
}

func emptyUnary(ctx context.Context, c caller) error {
	_, err := c.empty("EmptyCall").CallUnary(ctx, connect.NewRequest(&pb.Empty{}))
	return err
}

func largeUnary(ctx context.Context, client *unaryClient) error {
	response, err := client.CallUnary(ctx, connect.NewRequest(
		&pb.SimpleRequest{ResponseSize: 314159, Payload: payload(271828)}))
	if err != nil {
		return err
	}
	return expectBody(response.Msg.Payload, 314159)
}

func compressedUnary(ctx context.Context, c caller) error {
	return largeUnary(ctx, c.unary("UnaryCall", connect.WithSendGzip()))
}

func cacheableUnary(ctx context.Context, c caller) error {
	client := c.unary("CacheableUnaryCall", connect.WithHTTPGet(),
		connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	response, err := client.CallUnary(ctx, connect.NewRequest(
		&pb.SimpleRequest{ResponseSize: 1000, Payload: payload(100)}))
	if err != nil {
		return err
	}
	return expectBody(response.Msg.Payload, 1000)
}

func clientStreaming(ctx context.Context, c caller) error {
	stream := c.input().CallClientStream(ctx)
	for _, size := range []int{27182, 8, 1828, 45904} {
		if err := stream.Send(&pb.StreamingInputCallRequest{Payload: payload(size)}); err != nil {
			return err
		}
	}
	response, err := stream.CloseAndReceive()
	if err != nil {
		return err
	}
	if got := response.Msg.AggregatedPayloadSize; got != 74922 {
		return fmt.Errorf("the server counted %d bytes", got)
	}
	return nil
}

var responseSizes = []int{31415, 9, 2653, 58979}

func serverStreaming(ctx context.Context, c caller) error {
	request := &pb.StreamingOutputCallRequest{}
	for _, size := range responseSizes {
		request.ResponseParameters = append(request.ResponseParameters, &pb.ResponseParameters{Size: int32(size)})
	}
	stream, err := c.output("StreamingOutputCall").CallServerStream(ctx, connect.NewRequest(request))
	if err != nil {
		return err
	}
	defer stream.Close()
	count := 0
	for ; stream.Receive(); count++ {
		if count == len(responseSizes) {
			return errors.New("too many responses")
		}
		if err := expectBody(stream.Msg().Payload, responseSizes[count]); err != nil {
			return err
		}
	}
	if stream.Err() == nil && count != len(responseSizes) {
		return fmt.Errorf("%d responses", count)
	}
	return stream.Err()
}

func oneResponse(size, sent int) *pb.StreamingOutputCallRequest {
	return &pb.StreamingOutputCallRequest{
		ResponseParameters: []*pb.ResponseParameters{{Size: int32(size)}},
		Payload:            payload(sent),
	}
}

func pingPong(ctx context.Context, c caller) error {
	stream := c.output("FullDuplexCall").CallBidiStream(ctx)
	for i, size := range []int{27182, 8, 1828, 45904} {
		if err := stream.Send(oneResponse(responseSizes[i], size)); err != nil {
			return err
		}
		response, err := stream.Receive()
		if err != nil {
			return err
		}
		if err := expectBody(response.Payload, responseSizes[i]); err != nil {
			return err
		}
	}
	return expectEnd(stream)
}

func expectEnd(stream *connect.BidiStreamForClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if err := stream.CloseRequest(); err != nil {
		return err
	}
	if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("wanted the end, got %v", err)
	}
	return stream.CloseResponse()
}

func emptyStream(ctx context.Context, c caller) error {
	return expectEnd(c.output("FullDuplexCall").CallBidiStream(ctx))
}

const (
	initialKey   = "X-Grpc-Test-Echo-Initial"
	initialValue = "test_initial_metadata_value"
	trailingKey  = "X-Grpc-Test-Echo-Trailing-Bin"
)

var trailingValue = []byte{0x0a, 0x0b, 0x0a, 0x0b, 0x0a, 0x0b}

func expectMetadata(header, trailer http.Header) error {
	if got := header.Get(initialKey); got != initialValue {
		return fmt.Errorf("the initial metadata is %q", got)
	}
	got, err := connect.DecodeBinaryHeader(trailer.Get(trailingKey))
	if err != nil || !bytes.Equal(got, trailingValue) {
		return fmt.Errorf("the trailing metadata is %x (%v)", got, err)
	}
	return nil
}

func customMetadata(ctx context.Context, c caller) error {
	request := connect.NewRequest(&pb.SimpleRequest{ResponseSize: 1, Payload: payload(1)})
	request.Header().Set(initialKey, initialValue)
	request.Header().Set(trailingKey, connect.EncodeBinaryHeader(trailingValue))
	response, err := c.unary("UnaryCall").CallUnary(ctx, request)
	if err != nil {
		return err
	}
	if err := expectMetadata(response.Header(), response.Trailer()); err != nil {
		return err
	}
	stream := c.output("FullDuplexCall").CallBidiStream(ctx)
	stream.RequestHeader().Set(initialKey, initialValue)
	stream.RequestHeader().Set(trailingKey, connect.EncodeBinaryHeader(trailingValue))
	if err := stream.Send(oneResponse(1, 1)); err != nil {
		return err
	}
	if _, err := stream.Receive(); err != nil {
		return err
	}
	if err := expectEnd(stream); err != nil {
		return err
	}
	return expectMetadata(stream.ResponseHeader(), stream.ResponseTrailer())
}

func expectStatus(err error, message string) error {
	var told *connect.Error
	if !errors.As(err, &told) || told.Code() != connect.CodeUnknown || told.Message() != message {
		return fmt.Errorf("wanted unknown: %q, got %v", message, err)
	}
	return nil
}

func statusCodeAndMessage(ctx context.Context, c caller) error {
	const message = "test status message"
	wanted := &pb.EchoStatus{Code: 2, Message: message}
	_, err := c.unary("UnaryCall").CallUnary(ctx, connect.NewRequest(&pb.SimpleRequest{ResponseStatus: wanted}))
	if err := expectStatus(err, message); err != nil {
		return err
	}
	stream := c.output("FullDuplexCall").CallBidiStream(ctx)
	if err := stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: wanted}); err != nil {
		return err
	}
	if err := stream.CloseRequest(); err != nil {
		return err
	}
	_, err = stream.Receive()
	return expectStatus(err, message)
}

func specialStatusMessage(ctx context.Context, c caller) error {
	const message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
	_, err := c.unary("UnaryCall").CallUnary(ctx, connect.NewRequest(
		&pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: 2, Message: message}}))
	return expectStatus(err, message)
}

func unimplemented(ctx context.Context, c caller) error {
	_, err := c.empty("UnimplementedCall").CallUnary(ctx, connect.NewRequest(&pb.Empty{}))
	return expectCode(err, connect.CodeUnimplemented)
}

func unimplementedService(ctx context.Context, c caller) error {
	c.base = c.base[:len(c.base)-len(service)] + "/grpc.testing.UnimplementedService/"
	return unimplemented(ctx, c)
}

func cancelAfterBegin(ctx context.Context, c caller) error {
	ctx, cancel := context.WithCancel(ctx)
	stream := c.input().CallClientStream(ctx)
	_ = stream.Send(nil) // the headers
	cancel()
	_, err := stream.CloseAndReceive()
	return expectCode(err, connect.CodeCanceled)
}

func cancelAfterFirstResponse(ctx context.Context, c caller) error {
	ctx, cancel := context.WithCancel(ctx)
	stream := c.output("FullDuplexCall").CallBidiStream(ctx)
	if err := stream.Send(oneResponse(31415, 27182)); err != nil {
		cancel()
		return err
	}
	if _, err := stream.Receive(); err != nil {
		cancel()
		return err
	}
	cancel()
	_, err := stream.Receive()
	return expectCode(err, connect.CodeCanceled)
}

func timeoutOnSleepingServer(ctx context.Context, c caller) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	stream := c.output("FullDuplexCall").CallBidiStream(ctx)
	request := oneResponse(1, 27182)
	request.ResponseParameters[0].IntervalUs = 10_000_000
	if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return expectCode(err, connect.CodeDeadlineExceeded)
	}
	_, err := stream.Receive()
	return expectCode(err, connect.CodeDeadlineExceeded)
}
