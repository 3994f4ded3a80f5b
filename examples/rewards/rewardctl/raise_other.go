//go:build !linux

package main

import "errors"

var signals = map[string]struct{}{}

func raise(string) error { return errors.New("faults need Linux") }
