package main

import "os"

func main() {
	if isSupervisor(os.Args) {
		os.Exit(superviseMain(os.Args[2:]))
	}
	ctx, stop := interruptible()
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}
