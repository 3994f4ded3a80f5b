package lockserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver/internal/queue"
	"github.com/fenced/fenced/tokens"
)

// drainTimeout bounds how long [Server.Run] waits for open requests at the end.
const drainTimeout = 3 * time.Second

// Server is one lock server. Make it with [New], then call [Server.Run]; calls
// made before the mirror is complete answer no_quorum.
type Server struct {
	config Config
	log    *slog.Logger
	store  store
	keys   keyspace

	puts    *putLane
	deletes *deleteLane
	timers  *timers

	// stopping is closed when Run begins to end; running counts open requests.
	// failed has the error that ends Run.
	stopping chan struct{}
	failed   chan error
	running  sync.WaitGroup

	mu       sync.Mutex
	stopped  bool
	table    *queue.Table
	locals   map[queue.Ref]*local
	sessions map[queue.Ref]*session
	pool     pool
	history  *history
	events   *eventLog
	waiting  []revisionWait
	mirror   mirrorState
	started  time.Time

	issued     *issuedFile   // nil without a file
	unchecked  bool          // there was no file to compare the store with
	tellClosed chan struct{} // wakes keepIssued
	freshID    string        // claims a store for a deployment that has no id yet
	asked      string        // the question that an answer would be to
	questions  []string      // keys of what others ask
	tellVouch  chan struct{} // wakes keepIssued
}

// New returns a server that does nothing until [Server.Run]. It does no I/O. A
// bad config is named by field.
func New(config Config) (*Server, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{
		config:   config,
		log:      config.Logger,
		store:    store{config.Client},
		keys:     keyspace{config.Prefix},
		stopping: make(chan struct{}),
		failed:   make(chan error, 1),
		table:    queue.NewTable(),
		locals:   make(map[queue.Ref]*local),
		sessions: make(map[queue.Ref]*session),
		history:  newHistory(now),
		events:   newEventLog(),
		started:  now,

		tellClosed: make(chan struct{}, 1),
		tellVouch:  make(chan struct{}, 1),
		freshID:    newID(),
	}
	s.puts = newPutLane(s)
	s.deletes = newDeleteLane(s)
	s.timers = newTimers(s)
	return s, nil
}

// Run serves until ctx ends, then answers open requests with shutting_down,
// waits for them at most 3 s, and returns when no goroutine of the server is
// left. Held holds stay held and kept places stay in the queue. It may be called
// once. A store of another deployment ends it with a [*ForeignError], one of a newer
// major version with a [*FormatError].
func (s *Server) Run(ctx context.Context) error {
	if err := s.openIssued(); err != nil {
		return err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var work sync.WaitGroup
	for _, run := range []func(context.Context){
		s.follow, s.puts.run, s.deletes.run, s.timers.run, s.watchLag, s.expireSessions,
		s.keepIssued, s.keepAudit, s.watchQuorum, s.seekVouch,
	} {
		work.Go(func() { run(life) })
	}
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-s.failed:
	}
	s.drain()
	cancel()
	work.Wait()
	if s.issued != nil {
		return errors.Join(failure, s.issued.close())
	}
	return failure
}

// openIssued opens the issued-token file, where the config names one.
func (s *Server) openIssued() error {
	if s.config.IssuedFile == "" {
		return nil
	}
	issued, fresh, err := openIssued(s.config.IssuedFile)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued, s.unchecked = issued, fresh
	return nil
}

// drain turns new requests away and waits for the open ones.
func (s *Server) drain() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	close(s.stopping)
	done := make(chan struct{})
	go func() { s.running.Wait(); s.deletes.flush(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTimeout):
		s.log.Warn("requests were still open when the server stopped")
	}
}

// enter counts a request in; leave must follow where it returns nil.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return shuttingDown()
	}
	if err := s.readyLocked(); err != nil {
		return err
	}
	s.running.Add(1)
	return nil
}

func (s *Server) leave() { s.running.Done() }

// Ready returns nil when the server can grant, else an error whose code says why
// not: no_quorum, behind, token_floor or shutting_down.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return shuttingDown()
	}
	if err := s.readyLocked(); err != nil {
		return err
	}
	return s.quorumLocked()
}

// WaitReady blocks until the server has read its store. It returns nil where it
// can grant then; a closed floor, the end of ctx and of the server are errors.
func (s *Server) WaitReady(ctx context.Context) error {
	for {
		s.mu.Lock()
		complete, err, moved := s.mirror.complete, s.readyLocked(), s.movedLocked()
		s.mu.Unlock()
		if complete {
			return err
		}
		select {
		case <-moved:
		case <-s.stopping:
			return shuttingDown()
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Server) readyLocked() error {
	switch {
	case !s.mirror.complete:
		return &apierr.Error{
			ErrCode: apierr.NoQuorum, RetryAfter: time.Second, Cause: s.mirror.err,
			Detail: "the store has not been read yet",
		}
	case s.mirror.closed != "":
		return &apierr.Error{
			ErrCode: apierr.TokenFloor, RetryAfter: 2 * time.Second,
			Detail: "granting is closed: " + s.mirror.closed + "; run: " + s.repair(),
		}
	}
	return nil
}

// Status returns what the server knows of itself and its store. It does not block
// and its error is nil.
func (s *Server) Status(context.Context) (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{
		Name: s.config.Name, Cluster: s.mirror.cluster,
		Revision: s.mirror.rev, Base: s.mirror.base, Highest: tokenOf(s.mirror.base + s.mirror.rev),
		Lag:   s.lagLocked(time.Now()),
		Holds: s.table.Holds(), Waiters: s.table.Queued(), Locks: s.table.Locks(),
		Sessions: len(s.sessions), Floor: s.floorLocked(),
		HistorySince: s.history.since, Started: s.started, BadKeys: s.mirror.badKeys, Differences: s.mirror.differences,
	}, nil
}

func (s *Server) floorLocked() FloorState {
	switch {
	case s.mirror.closed != "":
		return Closed
	case s.issued == nil || s.unchecked:
		return Unprotected
	}
	return Protected
}

// tokenOf converts a number of the log to a token; 0 stays 0, "no token".
func tokenOf(n int64) tokens.Token { return tokens.Token(n) }

// fault logs what should never happen and counts it; the engine goes on.
func (s *Server) fault(what string, args ...any) {
	s.log.Error("store: "+what, args...)
}
