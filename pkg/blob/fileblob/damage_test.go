package fileblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func create(t testing.TB, s *Store, data []byte) string {
	t.Helper()
	key, err := s.Create(context.Background(), blob.PrefixBatches, data)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func kindOfGet(s *Store, key string, span blob.Span) queue.Kind {
	_, err := s.Get(context.Background(), key, span, nil)
	if err == nil {
		return 255
	}
	return queue.KindOf(err)
}

func mustLocate(t testing.TB, key string) location {
	t.Helper()
	loc, ok := parseLocation(key)
	if !ok {
		t.Fatalf("%s is not the key of a packed object", key)
	}
	return loc
}

// TestTornTail cuts and damages the last entry of a pack at every byte: the earlier entries are
// unharmed, the last one is never read with other bytes, and the store goes on.
func TestTornTail(t *testing.T) {
	first, second := bytes.Repeat([]byte("first "), 30), bytes.Repeat([]byte("second"), 30)
	d := newMemDisk()
	s := openMem(t, d)
	key1, key2 := create(t, s, first), create(t, s, second)
	loc := mustLocate(t, key2)
	end := loc.pos + stride(loc.size)
	damages := map[string]func(b []byte, at int64) []byte{
		"cut":   func(b []byte, at int64) []byte { return b[:at] },
		"zeros": func(b []byte, at int64) []byte { clear(b[at:]); return b },
		"flip":  func(b []byte, at int64) []byte { b[at] ^= 0x10; return b },
	}
	for name, damage := range damages {
		for at := loc.pos; at < end; at++ {
			torn := d.crash(newRand(at))
			torn.edit(t, "00000001.pack", func(b []byte) []byte { return damage(b, at) })
			s := openMem(t, torn)
			if got, err := s.Get(context.Background(), key1, blob.Span{}, nil); err != nil || !bytes.Equal(got, first) {
				t.Fatalf("%s at %d: the first entry reads %d bytes, %v", name, at, len(got), err)
			}
			got, err := s.Get(context.Background(), key2, blob.Span{}, nil)
			inPadding := at >= loc.pos+entryHeader+loc.size
			switch {
			case err == nil && !bytes.Equal(got, second):
				t.Fatalf("%s at %d: the torn entry reads other bytes", name, at)
			case err == nil && !inPadding && name != "zeros":
				t.Fatalf("%s at %d: the torn entry reads as whole", name, at)
			case err != nil && !queue.Is(err, queue.KindCorrupt) && !queue.Is(err, queue.KindNotFound):
				t.Fatalf("%s at %d: %v", name, at, err)
			}
			key3 := create(t, s, []byte("third"))
			if mustLocate(t, key3).seq == 1 {
				t.Fatalf("%s at %d: the torn pack was appended to", name, at)
			}
			page, err := s.List(context.Background(), "", "", 10)
			if err != nil || len(page.Objects) < 2 || page.Objects[0].Key != key1 || page.Objects[len(page.Objects)-1].Key != key3 {
				t.Fatalf("%s at %d: list %+v, %v", name, at, page, err)
			}
			if err := s.Delete(context.Background(), key1, key2, key3); err != nil {
				t.Fatalf("%s at %d: delete: %v", name, at, err)
			}
			_ = s.Close()
		}
	}
}

// TestDamageHidesOneEntryOnly damages a header in the middle of a pack.
func TestDamageHidesOneEntryOnly(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	var keys []string
	for i := range 9 {
		keys = append(keys, create(t, s, bytes.Repeat([]byte{byte(i)}, 700)))
	}
	d.edit(t, "00000001.pack", func(b []byte) []byte { b[mustLocate(t, keys[4]).pos+10] ^= 1; return b })
	page, err := s.List(context.Background(), "", "", 100)
	if err != nil || len(page.Objects) != 8 || page.Objects[4].Key != keys[5] {
		t.Fatalf("%d objects are listed, %v", len(page.Objects), err)
	}
	if got := kindOfGet(s, keys[4], blob.Span{Pos: 1, Len: 1}); got != queue.KindCorrupt {
		t.Fatalf("the damaged entry is %v", got)
	}
	// Damaged bytes are found by whole reads; a span is the caller's to check.
	d.edit(t, "00000001.pack", func(b []byte) []byte { b[mustLocate(t, keys[5]).pos+entryHeader+9] ^= 1; return b })
	if got := kindOfGet(s, keys[5], blob.Span{}); got != queue.KindCorrupt {
		t.Fatalf("the entry with damaged bytes is %v", got)
	}
	// A damaged pack header makes what the pack holds Corrupt, not NotFound, and stops nobody else.
	d.edit(t, "00000001.pack", func(b []byte) []byte { b[30] ^= 1; return b })
	_ = s.Close()
	s = openMem(t, d)
	if got := kindOfGet(s, keys[0], blob.Span{}); got != queue.KindCorrupt {
		t.Fatalf("an entry of the damaged pack is %v", got)
	}
	create(t, s, []byte("on"))
	if err := s.Delete(context.Background(), keys...); err != nil {
		t.Fatal(err)
	}
}

// TestMessagesCannotPoseAsEntries stores bytes that look like an entry and asks for them.
func TestMessagesCannotPoseAsEntries(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	victim := create(t, s, []byte("someone else's bytes"))
	loc := mustLocate(t, victim)
	// The attacker knows the format and where the next entry will be, but not the salt.
	fake := entry{nonce: loc.nonce, pos: loc.pos + 2*stride(loc.size), size: 4, created: 1}
	body := make([]byte, 2*entryHeader)
	var guess [saltBytes]byte
	fake.encode(body, &guess)
	create(t, s, body)
	p := packInfo{seq: loc.seq, prefix: loc.prefix, salt: guess}
	forged := []string{
		p.key(&fake),
		strings.Replace(victim, "-00000014-", "-00000015-", 1),
	}
	for at := range 400 {
		l := loc
		l.pos = int64(at)
		forged = append(forged, l.String())
	}
	for _, key := range forged {
		if key == victim {
			continue
		}
		if got := kindOfGet(s, key, blob.Span{Pos: 0, Len: 1}); got != queue.KindNotFound {
			t.Fatalf("%s is %v", key, got)
		}
		if err := s.Delete(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := kindOfGet(s, victim, blob.Span{}); got != 255 {
		t.Fatalf("the victim is %v", got)
	}
	if page, err := s.List(context.Background(), "", "", 10); err != nil || len(page.Objects) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestDamagedObjectFile(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 300)
	const name = "kuploads+a.obj"
	for at := range 300 + len("uploads/a") + footerBytes {
		d := newMemDisk()
		s := openMem(t, d)
		if _, err := s.Put(context.Background(), "uploads/a", bytes.NewReader(data), blob.Terms{Size: 300}); err != nil {
			t.Fatal(err)
		}
		d.edit(t, name, func(b []byte) []byte { b[at] ^= 4; return b })
		if got := kindOfGet(s, "uploads/a", blob.Span{}); got != queue.KindCorrupt {
			t.Fatalf("flip at %d: get is %v", at, got)
		}
		r, _, err := s.Open(context.Background(), "uploads/a", blob.Span{})
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if !queue.Is(err, queue.KindCorrupt) {
			t.Fatalf("flip at %d: open is %v", at, err)
		}
		d.edit(t, name, func(b []byte) []byte { return b[:at] })
		if got := kindOfGet(s, "uploads/a", blob.Span{Pos: 0, Len: 1}); got != queue.KindCorrupt {
			t.Fatalf("cut at %d: %v", at, got)
		}
		// It is still listed, is not replaced, and can be deleted.
		page, err := s.List(context.Background(), "", "", 1)
		if err != nil || len(page.Objects) != 1 {
			t.Fatalf("cut at %d: %+v, %v", at, page, err)
		}
		if _, err = s.Put(context.Background(), "uploads/a", bytes.NewReader(data), blob.Terms{Size: 300}); !queue.Is(err, queue.KindExists) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		if err = s.Delete(context.Background(), "uploads/a"); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	}
}

// TestFailedSyncPoisonsThePack: after it nothing unsynced is shown and nothing more is appended.
func TestFailedSyncPoisonsThePack(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	before := create(t, s, []byte("before"))
	d.setFault(func(op, name string) faultKind {
		if op == "sync" && strings.HasPrefix(name, packsDir) {
			return faultBefore
		}
		return faultNone
	})
	_, err := s.Create(context.Background(), blob.PrefixBatches, []byte("lost"))
	if !queue.Is(err, queue.KindOutcomeUnknown) {
		t.Fatalf("create: %v", err)
	}
	if err := s.Delete(context.Background(), before); !queue.Is(err, queue.KindOutcomeUnknown) {
		t.Fatalf("delete: %v", err)
	}
	d.setFault(nil)
	page, err := s.List(context.Background(), "", "", 10)
	if err != nil || len(page.Objects) != 0 {
		t.Fatalf("%+v, %v", page, err)
	}
	after := create(t, s, []byte("after"))
	if mustLocate(t, after).seq == mustLocate(t, before).seq {
		t.Fatal("the poisoned pack was appended to")
	}
	// The retry must reach the disk, though the byte is set already in the system's memory.
	if err = s.Delete(context.Background(), before); err != nil {
		t.Fatal(err)
	}
	again := openMem(t, d.crash(newRand(1)))
	if got := kindOfGet(again, before, blob.Span{}); got != queue.KindNotFound {
		t.Fatalf("the deleted object is %v", got)
	}
	if got := kindOfGet(again, after, blob.Span{}); got != 255 {
		t.Fatalf("the new object is %v", got)
	}
}

// TestNoRoom: a limit of the file size, of the process or of the file system, is as a full disk.
func TestNoRoom(t *testing.T) {
	for _, cause := range []syscall.Errno{syscall.ENOSPC, syscall.EFBIG} {
		if err := ioError("write", "pack", &os.PathError{Op: "write", Err: cause}); queue.CodeOf(err) != queue.CodeStorageFull {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	for _, kind := range []faultKind{faultFullBefore, faultFullHalf} {
		d := newMemDisk()
		s := openMem(t, d)
		first := create(t, s, []byte("first"))
		d.setFault(func(op, _ string) faultKind {
			if op == "write" || op == "create" {
				return kind
			}
			return faultNone
		})
		for range 3 {
			_, err := s.Create(context.Background(), blob.PrefixBatches, make([]byte, 5000))
			if !queue.Is(err, queue.KindFull) || queue.CodeOf(err) != queue.CodeStorageFull {
				t.Fatal(err)
			}
			_, err = s.Create(context.Background(), blob.PrefixSegments, make([]byte, 5000))
			if !queue.Is(err, queue.KindFull) {
				t.Fatal(err)
			}
			_, err = s.Put(context.Background(), "uploads/a", strings.NewReader("x"), blob.Terms{Size: 1})
			if !queue.Is(err, queue.KindFull) {
				t.Fatal(err)
			}
		}
		if n := d.count(tmpDir); n != 0 {
			t.Fatalf("%d files are left in tmp", n)
		}
		d.setFault(nil)
		second := create(t, s, []byte("second"))
		if mustLocate(t, second).seq != mustLocate(t, first).seq {
			t.Fatal("a full disk cost the pack")
		}
		for _, store := range []*Store{s, openMem(t, d.crash(newRand(3)))} {
			page, err := store.List(context.Background(), "", "", 10)
			if err != nil || len(page.Objects) != 2 || page.Objects[0].Key != first || page.Objects[1].Key != second {
				t.Fatalf("%+v, %v", page, err)
			}
		}
	}
}

func TestReadOnlyFolder(t *testing.T) {
	err := ioError("create pack", "x", &os.PathError{Op: "open", Path: "x", Err: syscall.EROFS})
	if !queue.Is(err, queue.KindUnavailable) || !strings.Contains(err.Error(), "cannot be written") {
		t.Fatal(err)
	}
	// A file in the place of the folder cannot be written to by anyone, whoever runs the test.
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{path, filepath.Join(path, "below")} {
		if _, err := Open(dir, time.Now, Options{}); !queue.Is(err, queue.KindUnavailable) {
			t.Fatalf("%s: %v", dir, err)
		}
	}
}

// TestFolderIsTakenAway: nothing is acknowledged that went to files which the next start will not find.
func TestFolderIsTakenAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "objects")
	s := openStore(t, dir, Options{})
	create(t, s, []byte("before"))
	put := func() error {
		_, err := s.Create(t.Context(), blob.PrefixBatches, []byte("meanwhile"))
		return err
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := put(); !queue.Is(err, queue.KindUnavailable) {
			t.Errorf("into a folder that was moved away: %v", err)
		}
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	create(t, s, []byte("after"))
	packs, err := filepath.Glob(filepath.Join(dir, "packs", "*.pack"))
	if err != nil || len(packs) != 2 {
		t.Fatal(packs, err)
	}
	for _, pack := range packs {
		if err := os.Remove(pack); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("into a pack that was removed: %v", err)
	}
	create(t, s, []byte("into a new pack"))
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	s := openStore(t, dir, Options{})
	_, err := Open(dir, time.Now, Options{})
	if !queue.Is(err, queue.KindUnavailable) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Create(context.Background(), blob.PrefixBatches, nil); !queue.Is(err, queue.KindUnavailable) {
		t.Fatal(err)
	}
	openStore(t, dir, Options{})
}

func TestStaleUploadsAreRemoved(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	broken := io.MultiReader(strings.NewReader("x"), errorReader{})
	d.setFault(func(op, _ string) faultKind {
		if op == "remove" {
			return faultBefore
		}
		return faultNone
	})
	if _, err := s.Put(context.Background(), "uploads/a", broken, blob.Terms{Size: 9}); err == nil {
		t.Fatal("stored")
	}
	d.setFault(nil)
	if d.count(tmpDir) != 1 {
		t.Fatal("nothing is left behind to remove")
	}
	_ = s.Close()
	openMem(t, d)
	if d.count(tmpDir) != 0 {
		t.Fatal("the stale upload is still there")
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("gone") }

func TestEmptyPacksAreRemoved(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	var keys []string
	for i := range 40 { // some packs of 64 KiB
		keys = append(keys, create(t, s, bytes.Repeat([]byte{byte(i)}, 6000)))
	}
	full := s.Stats().Packs
	if full < 4 {
		t.Fatalf("%d packs", full)
	}
	// A reader that holds the pack open reads on while it is removed.
	h, err := s.handles.acquire(1)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Delete(context.Background(), keys[:39]...); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Packs; n != 1 || d.count(packsDir) != 1 {
		t.Fatalf("%d packs are left, %d files", n, d.count(packsDir))
	}
	if _, err = h.f.ReadAt(make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	h.release()
	// The pack in use is removed once it is sealed: here by the restart after it.
	if err = s.Delete(context.Background(), keys[39]); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = openMem(t, d)
	if page, err := s.List(context.Background(), "", "", 10); err != nil || len(page.Objects) != 0 {
		t.Fatalf("%+v, %v", page, err)
	}
	if n := d.count(packsDir); n != 0 {
		t.Fatalf("%d packs are left", n)
	}
	if got := kindOfGet(s, keys[0], blob.Span{}); got != queue.KindNotFound {
		t.Fatalf("an object of a removed pack is %v", got)
	}
}

func TestHandlesAreBounded(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	s.handles.max = 3
	var keys []string
	for i := range 60 {
		keys = append(keys, create(t, s, bytes.Repeat([]byte{byte(i)}, 9000)))
	}
	for i, key := range keys {
		got, err := s.Get(context.Background(), key, blob.Span{}, nil)
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 9000)) {
			t.Fatal(err)
		}
		if n := s.Stats().OpenPacks; n > 3 {
			t.Fatalf("%d packs are open", n)
		}
	}
}

func TestManyPrefixes(t *testing.T) {
	s := openMem(t, newMemDisk())
	for i := range maxLanes + 10 {
		data := []byte(fmt.Sprint(i))
		key, err := s.Create(context.Background(), fmt.Sprintf("p%03d/", i), data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(context.Background(), key, blob.Span{}, nil); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %v", key, err)
		}
	}
	if n := s.Stats().Packs; n != maxLanes {
		t.Fatalf("%d packs", n)
	}
}

// TestCanceledWhileWaiting gives up on a create that has not been taken by the writer.
func TestCanceledWhileWaiting(t *testing.T) {
	d := newMemDisk()
	s := openMem(t, d)
	reached, release := make(chan struct{}), make(chan struct{})
	create(t, s, []byte("first"))
	blocked := false
	d.setGate(func(op string) {
		if op == "sync" && !blocked {
			blocked = true
			close(reached)
			<-release
		}
	})
	answered := make(chan error, 1)
	go func() {
		_, err := s.Create(context.Background(), blob.PrefixBatches, []byte("under way"))
		answered <- err
	}()
	<-reached
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := s.Create(ctx, blob.PrefixBatches, []byte("waiting"))
	if !queue.Is(err, queue.KindCanceled) {
		t.Fatal(err)
	}
	close(release)
	if err = <-answered; err != nil {
		t.Fatal(err)
	}
	d.setGate(nil)
	if page, err := s.List(context.Background(), "", "", 10); err != nil || len(page.Objects) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestOptions(t *testing.T) {
	for _, opts := range []Options{
		{PackBytes: 1},
		{PackBytes: maxPackBytes + 1},
		{SmallBytes: -1},
		{SmallBytes: maxSmallBytes + 1},
		{PackBytes: minPackBytes, SmallBytes: minPackBytes},
	} {
		if _, err := Open(t.TempDir(), time.Now, opts); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}
