package local

import (
	"os"
	"path/filepath"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// layout is where the parts of a data folder are.
type layout struct{ dir, objects, meta, key string }

func layoutOf(dir string) layout {
	return layout{dir, filepath.Join(dir, "objects"), filepath.Join(dir, "meta.db"), filepath.Join(dir, "url.key")}
}

// checkUsed refuses a folder that was used before and has lost a part since: a start would make the
// part anew, empty, and all that was acknowledged would be gone without a word. The key is made last,
// when the others are durable, so where it is they must be, and the metadata is never empty.
func (l layout) checkUsed() error {
	if _, err := os.Stat(l.key); err != nil && !l.hasPacks() {
		return nil
	}
	const advice = "put it back, or use another folder"
	info, err := os.Stat(l.meta)
	switch {
	case os.IsNotExist(err):
		return l.lost(l.meta, "it is missing from a folder that was used: "+advice)
	case err == nil && info.Size() == 0:
		return l.lost(l.meta, "it is empty in a folder that was used: "+advice)
	}
	if _, err := os.Stat(l.objects); os.IsNotExist(err) {
		return l.lost(l.objects, "it is missing from a folder that was used: "+advice)
	}
	return nil
}

// hasPacks stands in for a key that somebody removed to have another.
func (l layout) hasPacks() bool {
	names, err := os.ReadDir(filepath.Join(l.objects, "packs"))
	return err == nil && len(names) > 0
}

func (l layout) lost(path, message string) error {
	return &queue.Error{Op: "open data folder", Subject: path, Kind: queue.KindCorrupt, Message: message}
}
