package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one server in a process of its own.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  *tail
	gone chan struct{} // closed when it has ended
}

// spawn starts a command that ends, at the latest, with this process.
func spawn(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, log: &tail{}, gone: make(chan struct{})}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	cmd.Stderr = p.log
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended stands in its log
		close(p.gone)
	}()
	return p, nil
}

// spawnRole starts this binary as one of the servers of roles.go and waits for its
// first answer.
func spawnRole(role, dir string, ready any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, dirEnv+"="+dir)
	p, err := spawn(role, cmd)
	if err != nil {
		return nil, err
	}
	if err := p.read(ready); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// ask sends a command line to a role and reads its answer.
func (p *process) ask(answer any, format string, args ...any) error {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return p.died(err)
	}
	return p.read(answer)
}

func (p *process) read(answer any) error {
	var r reply
	if err := p.out.Decode(&r); err != nil {
		return p.died(err)
	}
	if r.Error != "" {
		return fmt.Errorf("%s: %s", p.name, r.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(r.Answer, answer)
}

func (p *process) died(err error) error {
	return fmt.Errorf("%s: %w; its log ends with: %s", p.name, err, p.log)
}

// stop ends the process and waits until it is gone. What it has on disk is not
// needed any more, so it is not asked to end well.
func (p *process) stop() {
	_ = p.cmd.Process.Kill() // errs only when it is gone already
	<-p.gone
}

// waitFor calls ready until it returns nil, the process ends or ctx does.
func (p *process) waitFor(ctx context.Context, every time.Duration, ready func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.gone:
			return p.died(errors.New("ended while it started"))
		case <-ctx.Done():
			return p.died(errors.Join(err, context.Cause(ctx)))
		}
	}
}

// tail keeps the end of a log for error messages.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLen = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailLen; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
