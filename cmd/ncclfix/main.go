// Ncclfix finds process groups that a checkout of PyTorch code opens and never
// destroys, shows the repair as a diff and writes it.
//
// The exit status is 0 if nothing is left to do, 1 if something was shown that
// is not written or a person is needed, and 2 if ncclfix could not do its work.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return newApp().run(ctx, os.Args[1:])
}
