// Command peer is what weft is tried against: gRPC's test service as grpc-go and connect-go speak it.
//
//	peer client -ca FILE -over h2|stream|h3 [-protocol grpc|grpcweb|connect] [-json] ADDRESS CASE
//	peer server -cert FILE -over h2|stream|h3
//	peer client -ca FILE -over quic [-size BYTES] [-streams N] [-resume] [-early] ADDRESS fetch
//	peer server -cert FILE -over quic [-retry]
//
// h2 is HTTP/2 over TLS, stream is HTTP/2 in the first stream of a QUIC connection, and h3 is HTTP/3.
// quic is the transport alone. A server writes its own certificate to -cert, prints its address, and serves until standard input
// ends.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"time"
)

const streamProtocol = "weft-h2/1"

type settings struct {
	over, protocol string
	json, retry    bool
	fetching       fetching
	tls            *tls.Config
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: peer client|server ARGUMENTS"))
	}
	flags := flag.NewFlagSet("peer", flag.ExitOnError)
	over := flags.String("over", "h3", "h2, stream, h3 or quic")
	protocol := flags.String("protocol", "grpc", "grpc, grpcweb or connect")
	useJSON := flags.Bool("json", false, "messages as JSON")
	ca := flags.String("ca", "", "certificate of the server")
	cert := flags.String("cert", "", "where to write the own certificate")
	retry := flags.Bool("retry", false, "validate every address first")
	var fetch fetching
	flags.IntVar(&fetch.size, "size", 1, "bytes a stream")
	flags.IntVar(&fetch.streams, "streams", 1, "at once")
	flags.BoolVar(&fetch.resume, "resume", false, "a session of a first connection")
	flags.BoolVar(&fetch.early, "early", false, "ask in 0-RTT")
	_ = flags.Parse(os.Args[2:])
	chosen := settings{over: *over, protocol: *protocol, json: *useJSON, retry: *retry, fetching: fetch}
	if os.Args[1] == "server" {
		fail(serve(chosen, *cert))
		return
	}
	if flags.NArg() != 2 {
		fail(errors.New("peer client wants ADDRESS CASE"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fail(call(ctx, chosen, *ca, flags.Arg(0), flags.Arg(1)))
}

func fail(err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

func call(ctx context.Context, s settings, ca, address, name string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no certificate in " + ca)
	}
	s.tls = &tls.Config{RootCAs: roots, ServerName: "localhost"}
	switch s.over {
	case "h3":
		return callHTTP3(ctx, s, address, name)
	case "quic":
		s.fetching.address = address
		return fetchTransport(ctx, s.tls, s.fetching)
	}
	return callGRPC(ctx, s, address, name)
}

func serve(s settings, certFile string) error {
	certificate, text, err := ownCertificate()
	if err != nil {
		return err
	}
	if err := os.WriteFile(certFile, text, 0o644); err != nil {
		return err
	}
	s.tls = &tls.Config{Certificates: []tls.Certificate{certificate}}
	if s.over == "quic" {
		return serveTransport(s.tls, s.retry)
	}
	failed := make(chan error, 1)
	address, err := start(s, failed)
	if err != nil {
		return err
	}
	fmt.Println(address)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

func start(s settings, failed chan<- error) (net.Addr, error) {
	if s.over == "h3" {
		return serveHTTP3(s, failed)
	}
	return serveGRPC(s, failed)
}

func ownCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text, nil
}
