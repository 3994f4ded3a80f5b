package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

// group is a part of the run whose measures take turns.
type group struct {
	name string
	run  func(*suite, context.Context) error
}

var groups = []group{
	{"locks", (*suite).locks},
	{"handover", (*suite).handover},
	{"crowd", (*suite).crowd},
	{"engine", (*suite).engines},
	{"start", (*suite).start},
	{"memory", (*suite).memory},
	{"expiry", (*suite).expiry},
	{"postgres", (*suite).postgres},
}

func groupNames() []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// chosen returns the groups of a list with commas, all for "".
func chosen(list string) ([]group, error) {
	if list == "" {
		return groups, nil
	}
	var which []group
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(groupNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no group %q, only %s", name, strings.Join(groupNames(), ", "))
		}
		which = append(which, groups[i])
	}
	return which, nil
}

// runAll runs the groups; one that fails leaves its keys null, and the others run
// on.
func (s *suite) runAll(ctx context.Context, which []group) error {
	var errs []error
	for _, g := range which {
		begin := time.Now()
		err := g.run(s, ctx)
		if s.leftOut(err) {
			err = nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.name, err))
		}
		s.tell(g.name, begin)
	}
	return errors.Join(errs...)
}

// peers has the clients of each kind by name; a kind that is missing has none.
type peers map[string][]locker

func (p peers) close() {
	for _, clients := range p {
		for _, c := range clients {
			c.close()
		}
	}
}

// Names of the kinds of clients, as they stand in the figures.
const (
	fencedHTTP    = "fenced_http"
	fencedSDK     = "fenced_sdk"
	v3lockPerLock = "v3lock_lease_per_lock"
	v3lockShared  = "v3lock_shared_lease"
	v3lockOneConn = "v3lock_shared_lease_one_connection"
	etcdMutex     = "etcd_mutex"
	etcdRaw       = "etcd_put_delete"
	zooKeeper     = "zookeeper"
	redisSet      = "redis"
)

// dialPeers connects as many clients of each kind as the run has.
func (s *suite) dialPeers(ctx context.Context) (peers, error) {
	lease, err := sharedLease(ctx, s.etcd)
	if err != nil {
		return nil, err
	}
	sdk, err := clientsdk.New(clientsdk.Config{Endpoints: []string{"http://" + s.fenced}, Owner: "bench", TTL: benchTTL})
	if err != nil {
		return nil, err
	}
	oneConn, err := newV3lock(s.etcd, lease)
	if err != nil {
		return nil, err
	}
	kinds := map[string]func(i int) (locker, error){
		fencedHTTP:    func(int) (locker, error) { return dialServed(s.fenced) },
		fencedSDK:     func(i int) (locker, error) { return sdkClient{sdk, i == 0}, nil },
		v3lockPerLock: func(int) (locker, error) { return newV3lock(s.etcd, 0) },
		v3lockShared:  func(int) (locker, error) { return newV3lock(s.etcd, lease) },
		v3lockOneConn: func(int) (locker, error) { return oneConn, nil },
		etcdMutex:     func(int) (locker, error) { return newMutex(s.etcd) },
		etcdRaw:       func(int) (locker, error) { return newRaw(s.etcd) },
	}
	if s.zookeeper != "" {
		kinds[zooKeeper] = func(int) (locker, error) { return newZooKeeper(s.zookeeper) }
	}
	if s.redis != "" {
		kinds[redisSet] = func(int) (locker, error) { return newRedis(s.redis) }
	}
	p := make(peers, len(kinds))
	for name, dial := range kinds {
		for i := range s.clients {
			c, err := dial(i)
			if err != nil {
				p.close()
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			p[name] = append(p[name], c)
		}
	}
	return p, nil
}

// locks measures cycles of acquire and release: own locks, one lock, one client.
func (s *suite) locks(ctx context.Context) error {
	p, err := s.dialPeers(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := s.warmUp(ctx, p); err != nil {
		return err
	}
	for _, step := range []func(context.Context, peers) error{s.ownLocks, s.oneLock, s.fewClients, s.oneClient} {
		if err := step(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// zooKeeperWarm is how much longer than others ZooKeeper is warmed up: its machine
// compiles what it runs as it runs it.
const zooKeeperWarm = 8

func (s *suite) warmUp(ctx context.Context, p peers) error {
	for name, clients := range p {
		d := s.warm
		if name == zooKeeper {
			d *= zooKeeperWarm
		}
		if _, err := drive(ctx, d, ownLocks(clients)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// rates measures the rate of n clients of each kind that is there.
func (s *suite) rates(ctx context.Context, p peers, prefix string, n int, on func([]locker) []func(context.Context) error, kinds ...string) (map[string]series, error) {
	return s.measureKinds(ctx, p, prefix, "", n, on, load.cycles, kinds...)
}

func (l load) cycles() float64 { return l.rate }

func (s *suite) measureKinds(ctx context.Context, p peers, prefix, suffix string, n int,
	on func([]locker) []func(context.Context) error, value func(load) float64, kinds ...string,
) (map[string]series, error) {
	var measures []measure
	for _, kind := range kinds {
		clients := p[kind]
		if len(clients) == 0 {
			continue
		}
		calls := on(clients[:min(n, len(clients))])
		measures = append(measures, measure{prefix + kind + suffix, func(ctx context.Context, d time.Duration) (float64, error) {
			l, err := drive(ctx, d, calls)
			return value(l), err
		}})
	}
	return s.measureAll(ctx, measures)
}

func (s *suite) ownLocks(ctx context.Context, p peers) error {
	got, err := s.rates(ctx, p, "own64_", s.clients, ownLocks,
		fencedHTTP, v3lockPerLock, v3lockShared, zooKeeper,
		fencedSDK, v3lockOneConn, etcdMutex, redisSet, etcdRaw)
	if err != nil {
		return err
	}
	ours := got["own64_"+fencedHTTP]
	s.report.ratio("own64_vs_v3lock_lease_per_lock", ours, got["own64_"+v3lockPerLock])
	s.report.ratio("own64_vs_v3lock_shared_lease", ours, got["own64_"+v3lockShared])
	s.report.ratio("own64_vs_zookeeper", ours, got["own64_"+zooKeeper])
	return nil
}

func (s *suite) oneLock(ctx context.Context, p peers) error {
	got, err := s.rates(ctx, p, "one64_", s.clients, oneLock, fencedHTTP, v3lockPerLock, zooKeeper, fencedSDK, etcdMutex)
	if err != nil {
		return err
	}
	ours := got["one64_"+fencedHTTP]
	s.report.ratio("one64_vs_v3lock", ours, got["one64_"+v3lockPerLock])
	s.report.ratio("one64_vs_zookeeper", ours, got["one64_"+zooKeeper])
	return nil
}

func (s *suite) fewClients(ctx context.Context, p peers) error {
	const few = 8
	got, err := s.rates(ctx, p, "one8_", few, oneLock, fencedHTTP, v3lockPerLock)
	if err != nil {
		return err
	}
	s.report.ratio("one8_vs_v3lock", got["one8_"+fencedHTTP], got["one8_"+v3lockPerLock])
	return nil
}

func (s *suite) oneClient(ctx context.Context, p peers) error {
	got, err := s.measureKinds(ctx, p, "one_client_", "_us", 1, ownLocks, load.p50,
		fencedHTTP, v3lockPerLock, v3lockShared, zooKeeper, fencedSDK, redisSet)
	if err != nil {
		return err
	}
	s.report.ratio("one_client_vs_v3lock", got["one_client_"+fencedHTTP+"_us"], got["one_client_"+v3lockPerLock+"_us"])
	return nil
}

// engines measures the engine in its process against the etcd it stands on.
func (s *suite) engines(ctx context.Context) error {
	var measures []measure
	for _, role := range []string{roleEngine, roleRaw} {
		p, err := s.role(role, nil)
		if err != nil {
			return err
		}
		defer p.stop()
		once := func(_ context.Context, d time.Duration) (rate float64, err error) {
			err = p.ask(&rate, "drive %d %s", s.engine, d)
			return rate, err
		}
		if _, err := once(ctx, s.warm); err != nil {
			return err
		}
		measures = append(measures, measure{"engine256_" + role, once})
	}
	got, err := s.measureAll(ctx, measures)
	if err != nil {
		return err
	}
	s.report.ratio("engine256_vs_raw_etcd", got["engine256_"+roleEngine], got["engine256_"+roleRaw])
	return nil
}

// start measures the time from the start of the binary to its first grant.
func (s *suite) start(ctx context.Context) error {
	var all series
	for range s.starts {
		begin := time.Now()
		p, _, err := s.spawnFenced(ctx)
		if err != nil {
			return err
		}
		all = append(all, time.Since(begin).Seconds())
		p.stop()
	}
	s.report.figure("start_to_grant_s", all)
	return nil
}
