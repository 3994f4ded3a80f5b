// Package freeport finds ports for servers that must be told theirs before they listen.
//
// A port that was free a moment ago may be anybody's: the system gives it to the next
// outgoing connection, or to the next test that asks. So these lie below the range that
// systems take for themselves (from 32768 on with Linux), and each is reserved among
// processes by the UDP port of the same number, which is held until the process ends.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	lowest  = 20000
	highest = 32000
	tries   = 1000
)

var reserved struct {
	sync.Mutex
	ports []net.PacketConn // what is collected is closed
}

// Addr returns "127.0.0.1:port" with a port that nobody listens on, and that no other
// call returns while this process lives.
func Addr() (string, error) {
	var err error
	for range tries {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest)))
		if err = reserve(addr); err == nil {
			return addr, nil
		}
	}
	return "", errors.Join(errors.New("no free port found"), err)
}

func reserve(addr string) error {
	token, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, token.Close())
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.ports = append(reserved.ports, token)
	return listener.Close()
}
