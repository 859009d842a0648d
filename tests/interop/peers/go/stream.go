package main

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/quic-go/quic-go"
)

// streamConn is one QUIC stream as the connection that HTTP/2 wants.
type streamConn struct {
	*quic.Stream
	connection *quic.Conn
}

func (c streamConn) LocalAddr() net.Addr  { return c.connection.LocalAddr() }
func (c streamConn) RemoteAddr() net.Addr { return c.connection.RemoteAddr() }

func (c streamConn) Close() error {
	c.CancelRead(0)
	_ = c.Stream.Close()
	return c.connection.CloseWithError(0, "")
}

func overStream(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{streamProtocol}
	return config
}

func dialStream(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	connection, err := quic.DialAddr(ctx, address, overStream(config), nil)
	if err != nil {
		return nil, err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return streamConn{stream, connection}, nil
}

// streamListener hands out the first stream of each connection.
type streamListener struct {
	*quic.Listener
	streams chan net.Conn
}

func listenStreams(config *tls.Config) (net.Listener, error) {
	listener, err := quic.ListenAddr("127.0.0.1:0", overStream(config), nil)
	if err != nil {
		return nil, err
	}
	made := streamListener{listener, make(chan net.Conn)}
	go made.run()
	return made, nil
}

func (l streamListener) run() {
	for {
		connection, err := l.Listener.Accept(context.Background())
		if err != nil {
			close(l.streams)
			return
		}
		go func() {
			if stream, err := connection.AcceptStream(context.Background()); err == nil {
				l.streams <- streamConn{stream, connection}
			}
		}()
	}
}

func (l streamListener) Accept() (net.Conn, error) {
	if stream, ok := <-l.streams; ok {
		return stream, nil
	}
	return nil, net.ErrClosed
}
