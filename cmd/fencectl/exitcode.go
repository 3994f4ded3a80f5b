package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
)

// exitCodes is the one table of exit codes, for people; the numbers are apierr's.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{0, "success; with run: the command's own code"},
	{apierr.ExitUsage, "the command line or a value is wrong"},
	{apierr.ExitUnreachable, "no server could answer"},
	{exitInternal, "a fault of fencectl or of the server"},
	{apierr.ExitNotAcquired, "the lock is held by another (run: see --conflict-exit-code)"},
	{apierr.ExitLost, "the lock was lost while the command ran, or the hold has ended"},
	{apierr.ExitRefused, "the API key may not do this"},
	{apierr.ExitConflict, "the hold or token named is not the current one; check: a token is not valid"},
	{exitNotExecutable, "run: the command could not be executed"},
	{exitNotFound, "run: the command was not found"},
	{128, "128+n when signal n ended fencectl or, with run, the command"},
}

const (
	exitInternal      = 70 // EX_SOFTWARE
	exitNotExecutable = 126
	exitNotFound      = 127
)

func exitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("The exit codes of fencectl:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&text, "\n  %3d  %s", e.code, e.meaning)
	}
	text.WriteString(`

With -o json an error also has a code. It is the server's, which explains its codes at
/docs, or "unreachable", where no server was reached or a read had no usable answer,
and so nothing was done.`)
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: text.String()}
}

// usageError is a fault of the command line. Where the server would refuse the same, it
// has the code of that.
type usageError struct {
	error
	code apierr.Code
}

// Code returns malformed, or out_of_bounds for a value that is.
func (e usageError) Code() apierr.Code { return e.code }

func usage(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...), apierr.Malformed}
}

func outOfBounds(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...), apierr.OutOfBounds}
}

// exitError is an error that no code of the API stands for, with its exit code and the
// next thing to try, which may be empty.
type exitError struct {
	exit int
	hint string
	error
}

func (e *exitError) Unwrap() error { return e.error }

// exitCode returns the code that goes with err.
func exitCode(err error) int {
	var u usageError
	var own *exitError
	var api *clientsdk.APIError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &u):
		return apierr.ExitUsage
	case errors.As(err, &own):
		return own.exit
	case errors.As(err, &api): // its code, also where it was repeated in vain
		return api.Code().Info().Exit
	case errors.Is(err, clientsdk.ErrUnavailable):
		return apierr.ExitUnreachable
	case errors.Is(err, context.Canceled):
		return 128 + 2
	}
	return apierr.CodeOf(err).Info().Exit
}

// hint is the next thing to try after err; empty where there is none.
func hint(err error) string {
	var u usageError
	var own *exitError
	var api *clientsdk.APIError
	switch {
	case errors.As(err, &u):
		return "see fencectl --help"
	case errors.As(err, &own):
		return own.hint
	case errors.As(err, &api): // a server has answered
		return hints[api.Code()]
	case errors.Is(err, clientsdk.ErrUnavailable):
		return connectionHint(err)
	}
	return hints[apierr.CodeOf(err)]
}

// connectionHint is what to try after err, an exchange without a usable answer.
func connectionHint(err error) string {
	var op *net.OpError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.SystemRootsError)):
		return "name the file of the authority that the server's certificate comes from with --ca or FENCED_CA"
	case errors.As(err, new(x509.HostnameError)):
		return "reach the server by a name that its certificate has, or give it another certificate"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "see the server's certificate, and the authority that --ca or FENCED_CA names"
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert
		return "the server may want a certificate: name one that it takes with --cert and --key"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, new(tls.RecordHeaderError)):
		return "no TLS is spoken there: is it http:// and not https://?"
	case errors.As(err, &op) && op.Op == "dial":
		return `is a server running there? start one with "fenced serve", or set FENCED_ADDR`
	}
	return "is it the address of a fenced server that runs, with http:// or https:// as that wants it? see --addr and FENCED_ADDR"
}

var hints = map[apierr.Code]string{
	apierr.LockHeld:      `wait with --wait, or see who holds it with "fencectl get"`,
	apierr.HolderChanged: `see the present token with "fencectl get"`,
	apierr.HoldGone:      "acquire the lock again",
	apierr.NotHeld:       "wait until it is granted",
	apierr.Unauthorized:  "set FENCED_API_KEY, or name a key in a context; see \"fencectl help contexts\"",
	apierr.Forbidden:     "use a key that may do this",
	apierr.NoQuorum:      `see which members run with "fencectl doctor"`,
	apierr.Behind:        `see the server's lag with "fencectl status"`,
	apierr.TokenFloor:    `"fencectl floor raise --help" says what that ends`,
	apierr.Quota:         "release holds of this key, or raise its quota",
	apierr.NotFound:      "is FENCED_ADDR the address of a fenced server of this version?",
	apierr.Misdirected:   "start the server with --public-host for this name",
}

// fail prints err as one line and returns its exit code.
func (a *app) fail(err error) int {
	if !a.started {
		err = usage("%w", err)
	}
	code := exitCode(err)
	if a.output == "json" {
		json.NewEncoder(a.err).Encode(map[string]any{"error": map[string]any{
			"code":    cmp.Or(string(apierr.CodeOf(err)), "internal"),
			"message": oneLine(err.Error()), "hint": hint(err), "exit": code,
		}})
		return code
	}
	text := "fencectl: " + oneLine(err.Error())
	if h := hint(err); h != "" {
		text += " (" + h + ")"
	}
	fmt.Fprintln(a.err, text)
	return code
}

// oneLine is s on one line, without what could move the cursor: a server or a proxy has
// written some of it.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.Join(strings.Fields(s), " "))
}
