package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Command runs a shell command for each message: body on standard input, the rest in SPILLWAY_*
// variables.
type Command struct {
	// Shell is how a line is run, as in ["sh", "-c"].
	Shell []string
	Line  string
	// Topic and Subscription are told to the command.
	Topic, Subscription string
	// Environ is what the command inherits.
	Environ        []string
	Stdout, Stderr io.Writer
}

// killDelay is how long a command whose claim is lost may take to end by itself.
const killDelay = 2 * time.Second

// Handle implements Handler.
func (c *Command) Handle(ctx context.Context, m *client.Received, body io.Reader) error {
	cmd := exec.CommandContext(ctx, c.Shell[0], slices.Concat(c.Shell[1:], []string{c.Line})...) // #nosec G204 -- what the user asked for
	cmd.WaitDelay = killDelay
	cmd.Stdin = body
	// The end of what it says on standard error is the best reason there is.
	tail := &tailWriter{out: c.Stderr}
	cmd.Stdout, cmd.Stderr = c.Stdout, tail
	cmd.Env = slices.Concat(c.Environ, c.variables(m))
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if last := tail.lastLine(); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

func (c *Command) variables(m *client.Received) []string {
	headers := m.Headers()
	encoded, err := json.Marshal(headers)
	if err != nil || headers == nil {
		encoded = []byte("{}")
	}
	out := []string{
		"SPILLWAY_TOPIC=" + c.Topic,
		"SPILLWAY_SUBSCRIPTION=" + c.Subscription,
		"SPILLWAY_ID=" + m.ID.String(),
		"SPILLWAY_KEY=" + strings.ReplaceAll(string(m.Key), "\x00", ""),
		"SPILLWAY_ATTEMPT=" + strconv.FormatUint(uint64(m.Attempt), 10),
		"SPILLWAY_CREATED_AT=" + queue.MillisOf(m.Created).String(),
		"SPILLWAY_SIZE=" + strconv.FormatInt(m.Size, 10),
		"SPILLWAY_HEADERS=" + string(encoded),
	}
	for name, value := range headers {
		out = append(out, "SPILLWAY_HEADER_"+variableName(name)+"="+strings.ReplaceAll(value, "\x00", ""))
	}
	return out
}

// variableName makes a header's name one of a shell variable.
func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, header)
}

// tailWriter passes everything on and remembers the end.
type tailWriter struct {
	out  io.Writer
	tail []byte
}

const tailBytes = 512

// Write implements io.Writer.
func (t *tailWriter) Write(p []byte) (int, error) {
	t.tail = append(t.tail, p...)
	if over := len(t.tail) - tailBytes; over > 0 {
		t.tail = append(t.tail[:0], t.tail[over:]...)
	}
	return t.out.Write(p)
}

func (t *tailWriter) lastLine() string {
	text := strings.TrimSpace(string(t.tail))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
