// Package contract is the list of what the Go SDK may rely on a server to do. The
// same list runs against the fake of clientsdk/sdktest and against the real program,
// so that the fake cannot drift: a test that passes on the fake means something.
//
//	contract.Run(t, func(t *testing.T) contract.Server { ... })
//
// Time is real here, so the TTL of the list is the shortest there is. Nothing is
// asserted about time but the promised bounds, with a second of slack.
package contract
