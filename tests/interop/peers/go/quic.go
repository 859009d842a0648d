package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// The transport alone: a client asks on each stream for so many bytes of a known pattern, as
// tests/interop/quic/main.cpp does it, and both ends print what their connections did.

const transportProtocol = "hq-interop"

func patternAt(offset int) byte { return byte(offset*31 + offset>>8) }

// pattern is read like a file of so many bytes.
type pattern struct{ at, size int }

func (p *pattern) Read(into []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	count := min(len(into), p.size-p.at)
	for i := range count {
		into[i] = patternAt(p.at + i)
	}
	p.at += count
	return count, nil
}

func transportConfig() *quic.Config {
	return &quic.Config{Allow0RTT: true, MaxIdleTimeout: 15 * time.Second, HandshakeIdleTimeout: 15 * time.Second}
}

type deeds struct {
	Connections int `json:"connections"`
	Resumed     int `json:"resumed"`
	Early       int `json:"early"`
	Retries     int `json:"retries"`
}

func (d *deeds) add(state quic.ConnectionState) {
	d.Connections++
	if state.TLS.DidResume {
		d.Resumed++
	}
	if state.Used0RTT {
		d.Early++
	}
}

func (d *deeds) print() error { return json.NewEncoder(os.Stdout).Encode(d) }

func serveTransport(config *tls.Config, retry bool) error {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	var validations atomic.Int64
	transport := quic.Transport{Conn: socket, VerifySourceAddress: func(net.Addr) bool {
		if retry {
			validations.Add(1)
		}
		return retry
	}}
	config = config.Clone()
	config.NextProtos = []string{transportProtocol}
	listener, err := transport.ListenEarly(config, transportConfig())
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	var done deeds
	var lock sync.Mutex
	var running sync.WaitGroup
	running.Go(func() {
		for {
			connection, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			running.Go(func() {
				answerAll(connection)
				lock.Lock()
				defer lock.Unlock()
				done.add(connection.ConnectionState())
			})
		}
	})
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := listener.Close(); err != nil {
		return err
	}
	running.Wait() // clients close their connections, and idle ones time out
	done.Retries = int(validations.Load())
	return done.print()
}

func answerAll(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			var size int
			line, _ := bufio.NewReader(stream).ReadString('\n')
			if _, err := fmt.Sscanf(line, "GET /%d", &size); err != nil {
				stream.CancelWrite(1)
				return
			}
			if _, err := io.Copy(stream, &pattern{size: size}); err == nil {
				_ = stream.Close()
			}
		}()
	}
}

// announcedCache tells when a ticket has come.
type announcedCache struct {
	tls.ClientSessionCache
	came chan struct{}
}

func (c announcedCache) Put(key string, state *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, state)
	select {
	case c.came <- struct{}{}:
	default:
	}
}

type fetching struct {
	address       string
	size, streams int
	resume, early bool
}

func fetchTransport(ctx context.Context, config *tls.Config, f fetching) error {
	config = config.Clone()
	config.NextProtos = []string{transportProtocol}
	tickets := announcedCache{tls.NewLRUClientSessionCache(10), make(chan struct{}, 10)}
	config.ClientSessionCache = tickets
	settings := transportConfig()
	settings.TokenStore = quic.NewLRUTokenStore(10, 10)
	if f.resume || f.early {
		first, err := quic.DialAddr(ctx, f.address, config, settings)
		if err != nil {
			return err
		}
		if err := fetchOne(ctx, first, 1); err != nil {
			return err
		}
		select {
		case <-tickets.came:
		case <-ctx.Done():
			return errors.New("no ticket came")
		}
		if err := first.CloseWithError(0, ""); err != nil {
			return err
		}
	}
	dial := quic.DialAddr
	if f.early {
		dial = quic.DialAddrEarly
	}
	connection, err := dial(ctx, f.address, config, settings)
	if err != nil {
		return err
	}
	errs := make(chan error, f.streams)
	for range f.streams {
		go func() { errs <- fetchOne(ctx, connection, f.size) }()
	}
	for range f.streams {
		if err := <-errs; err != nil {
			return err
		}
	}
	<-connection.HandshakeComplete()
	var done deeds
	done.add(connection.ConnectionState())
	if err := done.print(); err != nil {
		return err
	}
	return connection.CloseWithError(0, "")
}

func fetchOne(ctx context.Context, connection *quic.Conn, size int) error {
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stream, "GET /%d\r\n", size); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	at := 0
	block := make([]byte, 64<<10)
	for {
		count, err := stream.Read(block)
		for _, each := range block[:count] {
			if each != patternAt(at) {
				return fmt.Errorf("byte %d is wrong", at)
			}
			at++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", at, err)
		}
	}
	if at != size {
		return fmt.Errorf("%d bytes came of %d", at, size)
	}
	return nil
}
