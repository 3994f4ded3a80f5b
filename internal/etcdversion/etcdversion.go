// Package etcdversion says which versions of etcd may carry locks. The server asks it
// about an external etcd, and fencectl about the one that a server tells of.
package etcdversion

import "fmt"

// Check returns an error that names the fault of a version in which a watch can lose
// a delete or a linearizable read can be stale: 3.6.9 and 3.7.1 are the first without.
func Check(version string) error {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("version %q cannot be read", version)
	}
	ok := major > 3 || major == 3 && (minor > 7 || minor == 7 && patch >= 1 || minor == 6 && patch >= 9)
	if !ok {
		return fmt.Errorf("version %s has faults that lose watch events or read stale data; 3.6.9 or 3.7.1 is needed", version)
	}
	return nil
}
