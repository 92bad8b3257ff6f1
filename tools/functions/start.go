package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"time"
)

// fastestStart starts the program n times and gives the shortest time to its first request of the
// runtime API. The shortest: whatever else runs on the machine can only add to it.
func fastestStart(ctx context.Context, program string, n int) (time.Duration, error) {
	best := time.Duration(-1)
	for range n {
		took, err := start(ctx, program)
		if err != nil {
			return 0, err
		}
		if best < 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// start runs the program as Lambda does until it asks for its first event.
func start(ctx context.Context, program string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	asked, failed := make(chan time.Time, 1), make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- time.Now():
		default:
		}
		<-r.Context().Done() // there is no event
	})
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 4096)) // what came is shown
		select {
		case failed <- string(text):
		default:
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()

	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + l.Addr().String(), "AWS_LAMBDA_FUNCTION_NAME=start", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=none", "AWS_SECRET_ACCESS_KEY=none", "AWS_EC2_METADATA_DISABLED=true",
		"SPILLWAY_TABLE=table", "SPILLWAY_BUCKET=bucket", "SPILLWAY_LOG_LEVEL=info",
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	var exit error // set when ended is closed
	go func() {
		exit = cmd.Wait()
		close(ended)
	}()
	stop := func() string { // the output may be read once the process is gone
		cancel()
		<-ended
		return output.String()
	}
	select {
	case at := <-asked:
		stop()
		return at.Sub(began), nil
	case text := <-failed:
		return 0, fmt.Errorf("it could not start: %s\n%s", text, stop())
	case <-ended:
		return 0, fmt.Errorf("it ended before it asked for an event (%w)\n%s", errors.Join(exit, ctx.Err()), output.String())
	}
}
