// Package sdktest is for the tests of programs that use clientsdk: a lock server
// that lives in the test's own process, loses locks on command and answers badly on
// command, and a helper that starts the real server.
//
// # The fake
//
//	srv := sdktest.New()
//	defer srv.Close()
//	client, err := clientsdk.New(srv.Config())
//	...
//	srv.Expire("jobs/nightly")                                // the holder is paused too long
//	srv.Supersede("jobs/nightly")                             // and another had the lock since: its token is stale
//	srv.Break("jobs/nightly", "stuck")                        // a person ends the hold
//	srv.On(sdktest.Renew, sdktest.Fault{DropAnswer: true})    // the effect happens, the answer is lost
//	srv.On(sdktest.Acquire, sdktest.Fault{Code: "no_quorum"}) // the server refuses
//	srv.CutEvents()                                           // streams of events break off
//
// [Server.Config] connects through memory, without sockets. So inside a
// testing/synctest bubble the time of server and client is the bubble's: a test of
// what happens after an hour takes no time and no luck. Outside of a bubble the fake
// runs in real time.
//
// # What it promises, and what not
//
// The fake passes the same list of behaviours as the real server, over the same SDK:
// holds, sessions, lists, events, and API keys once [Server.AddKey] has made one. It
// keeps no data and has no quotas, and no store to copy or to add members to.
//
// # The real server
//
// [Start] builds and runs the program fenced on a free port with an empty data
// directory, and [Process] can stop, kill, freeze and restart it.
//
// # Concurrency
//
// All methods may be called from any number of goroutines. Close waits for none of
// the requests that it ends.
package sdktest
