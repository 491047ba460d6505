package health

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// TCP connects.
func TCP(server netip.AddrPort) Try {
	return func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", server.String())
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// UDP sends a datagram and waits for one that begins with expect.
func UDP(server netip.AddrPort, send, expect []byte) Try {
	return func(ctx context.Context) error {
		return exchange(ctx, server, send, func(answer []byte) error {
			if !bytes.HasPrefix(answer, expect) {
				return fmt.Errorf("the answer begins with %q, not with %q", answer[:min(len(answer), len(expect))], expect)
			}
			return nil
		})
	}
}

// DNS asks for the SOA record of name, in wire form, over UDP. NOERROR and
// NXDOMAIN will do.
func DNS(server netip.AddrPort, name []byte) Try {
	return func(ctx context.Context) error {
		var id [2]byte
		rand.Read(id[:]) // never fails: it ends the process where the kernel has no randomness
		query := append(id[:], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
		query = append(query, name...)
		query = binary.BigEndian.AppendUint16(query, uint16(wire.TypeSOA))
		query = binary.BigEndian.AppendUint16(query, uint16(wire.ClassIN))
		return exchange(ctx, server, query, func(answer []byte) error {
			const head, answerFlag = 12, 0x80
			switch {
			case len(answer) < head || answer[2]&answerFlag == 0 || !bytes.Equal(answer[:2], query[:2]):
				return fmt.Errorf("%d octets that do not answer the query", len(answer))
			case answer[3]&15 != 0 && answer[3]&15 != 3:
				return fmt.Errorf("the rcode is %d", answer[3]&15)
			}
			return nil
		})
	}
}

// exchange sends a datagram and judges the one that comes back.
func exchange(ctx context.Context, server netip.AddrPort, send []byte, judge func(answer []byte) error) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", server.String())
	if err != nil {
		return err
	}
	defer c.Close()
	// A context that ends early is a supervisor that stops: it closes the socket.
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write(send); err != nil {
		return err
	}
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if err != nil {
		return err
	}
	return judge(b[:n])
}

// HTTP gets a path. A status from 200 to 399 will do; redirects are not followed.
func HTTP(server netip.AddrPort, path string) Try {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.String()+path, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.CopyN(io.Discard, answer.Body, maxBody); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the answer: %w", err)
		}
		if answer.StatusCode < 200 || answer.StatusCode >= 400 {
			return fmt.Errorf("the status is %s", answer.Status)
		}
		return nil
	}
}

// maxBody bounds what is read of an answer.
const maxBody = 64 << 10
