package etcdtest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is how long goroutines may take to end after the tests. The peers
// of a cluster read with a timeout of 5 s of etcd's own, and net/http cannot end
// such a read earlier.
const leakPatience = 15 * time.Second

// VerifyNoLeaks runs the tests of a package that starts clusters, and exits with 1
// where goroutines are left when etcd has had its time. It does not return.
func VerifyNoLeaks(m interface{ Run() int }) {
	code := m.Run()
	if code == 0 {
		code = leaks(time.Now().Add(leakPatience))
	}
	os.Exit(code)
}

func leaks(deadline time.Time) int {
	for {
		err := goleak.Find()
		if err == nil {
			return 0
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}
