package local_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/local"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestLostParts: a folder that was used and has lost a part is refused, not begun anew.
func TestLostParts(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(dir string) error
		ok   bool
	}{
		{"nothing", func(string) error { return nil }, true},
		{"no metadata", func(dir string) error { return os.Remove(filepath.Join(dir, "meta.db")) }, false},
		{"empty metadata", func(dir string) error { return os.Truncate(filepath.Join(dir, "meta.db"), 0) }, false},
		{"no objects", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "objects")) }, false},
		{"no key", func(dir string) error { return os.Remove(filepath.Join(dir, "url.key")) }, true},
		{"no key and no metadata", func(dir string) error {
			return os.Rename(filepath.Join(dir, "meta.db"), filepath.Join(dir, "url.key.old"))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s := start(t, local.Options{Dir: dir})
			call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{}, &wire.Topic{})
			call(t, s, "POST", "/v1/topics/t/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text(strings.Repeat("x", 20_000))}}}, &wire.ProduceAnswer{})
			stop(t, s)
			if err := tc.harm(dir); err != nil {
				t.Fatal(err)
			}
			s, err := local.Start(t.Context(), local.Options{Dir: dir, Listen: "127.0.0.1:0"})
			if err == nil {
				stop(t, s)
			}
			if (err == nil) != tc.ok || !tc.ok && !queue.Is(err, queue.KindCorrupt) {
				t.Errorf("start: %v", err)
			}
		})
	}
}

// TestFolderIsTakenAway: a server whose folder is gone acknowledges nothing and is not ready.
func TestFolderIsTakenAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := start(t, local.Options{Dir: dir})
	call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{}, &wire.Topic{})
	produce := func(size int) queue.Code {
		var made wire.ProduceAnswer
		call(t, s, "POST", "/v1/topics/t/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text(strings.Repeat("x", size))}}}, &made)
		if e := made.Results[0].Error; e != nil {
			return e.Code
		}
		return ""
	}
	if code := produce(10) + produce(20_000); code != "" {
		t.Fatal(code)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{10, 20_000} {
		status, data := raw(t, s, "POST", "/v1/topics/t/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text(strings.Repeat("x", size))}}})
		if !strings.Contains(string(data), `"unavailable"`) {
			t.Errorf("%d bytes into a folder that is gone: %d %s", size, status, data)
		}
	}
	if status, _ := raw(t, s, "GET", "/readyz", nil); status != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d", status)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if code := produce(10) + produce(20_000); code != "" {
		t.Errorf("put back: %s", code)
	}
}
