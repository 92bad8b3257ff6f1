package compact

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
)

// object names what runs are of.
type object struct {
	key    string
	inline bool
}

func (o object) compare(p object) int {
	if o.inline != p.inline {
		if o.inline {
			return -1
		}
		return 1
	}
	return strings.Compare(o.key, p.key)
}

func (o object) upload() bool { return !o.inline && strings.HasPrefix(o.key, blob.PrefixUploads) }

// drop gives back what the refs of a drop owned and deletes the objects that nobody owns any more. It is
// idempotent: a run that ends half-way leaves the drop, and the next one goes through all of it again.
func (s *Service) drop(ctx context.Context, d *meta.Drop, version meta.Version) (deleted int, err error) {
	if d.Intent {
		// From here on the transaction that would make the object reachable is refused.
		next := *d
		next.Intent = false
		put := meta.Put{Record: &next, If: meta.At(version), Version: meta.NewVersion(s.IDs)}
		if _, err := s.Meta.Apply(ctx, put); err != nil {
			if _, refused := meta.AsRefused(err); refused {
				return 0, nil // it was used, or another is at it
			}
			return 0, err
		}
	}
	if d.Again {
		var some []object
		for _, r := range d.Runs {
			some = append(some, object{r.Object, r.Inline})
		}
		if err := s.clear(ctx, some); err != nil {
			return 0, err
		}
		return 0, s.forget(ctx, d)
	}
	runs := make(map[object][]meta.Run)
	var order []object
	for _, r := range d.Runs {
		o := object{r.Object, r.Inline}
		if runs[o] == nil {
			order = append(order, o)
		}
		runs[o] = append(runs[o], r)
	}
	var gone, noted []object
	for _, o := range order {
		f, err := s.release(ctx, o, runs[o])
		if err != nil {
			return 0, err
		}
		if f != owned {
			gone = append(gone, o)
		}
		if f == freeNoted {
			noted = append(noted, o)
		}
	}
	if err := s.remove(ctx, gone, noted); err != nil {
		return 0, err
	}
	return len(gone), s.forget(ctx, d)
}

// notes is what is noted of an object.
type notes struct {
	condemned bool
	holds     map[string]*meta.Hold
	freed     []*meta.Freed
}

func (s *Service) notes(ctx context.Context, o object) (*notes, error) {
	n := &notes{holds: make(map[string]*meta.Hold)}
	q := meta.Range{PK: meta.ObjectPK(o.key, o.inline), Limit: meta.MaxQueryLimit}
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			switch r := item.Record.(type) {
			case *meta.Condemned:
				n.condemned = true
			case *meta.Hold:
				n.holds[r.ID] = r
			case *meta.Freed:
				n.freed = append(n.freed, r)
			}
			q.From = meta.After(item.Record.Key().SK)
		}
		if !page.More {
			return n, nil
		}
	}
}

// count is how many records of a hold, or of the object's owners (""), were given up, and of how many.
func (n *notes) count(hold string) (freed, total uint32) {
	for _, f := range n.freed {
		if f.Run.Hold == hold {
			freed += f.Run.Count
			total = max(total, f.Run.Total)
		}
	}
	return freed, total
}

// fate is what becomes of an object.
type fate uint8

const (
	// owned: someone owns or holds it.
	owned fate = iota
	// free: nobody does, and nothing is noted of it; freeNoted: there are notes to remove, too.
	free
	freeNoted
)

// release notes that runs were given up, and reports whether nobody owns or holds the object now. Each
// step writes before it looks, so that of any number who give up the last runs at once, whoever looks
// last finds all of them gone.
func (s *Service) release(ctx context.Context, o object, runs []meta.Run) (fate, error) {
	n, err := s.notes(ctx, o)
	if err != nil {
		return owned, err
	}
	sole := len(runs) == 1 && runs[0].Hold == "" && runs[0].Total != 0 && runs[0].Count == runs[0].Total
	if sole && len(n.holds) == 0 {
		if len(n.freed) > 0 {
			return freeNoted, nil // of holds that are gone
		}
		return free, nil // most objects: one owner, nothing noted
	}
	for _, r := range runs {
		if err := s.give(ctx, n, r); err != nil {
			return owned, err
		}
	}
	if n, err = s.notes(ctx, o); err != nil {
		return owned, err
	}
	for _, id := range slices.Sorted(maps.Keys(n.holds)) {
		h := n.holds[id]
		if freed, _ := n.count(id); freed >= h.Total {
			if err := s.forget(ctx, h); err != nil {
				return owned, err
			}
			delete(n.holds, id)
		}
	}
	freed, total := n.count("")
	if len(n.holds) > 0 || !n.condemned && !o.upload() && (total == 0 || freed < total) {
		return owned, nil
	}
	if gone, err := s.condemn(ctx, o); err != nil || !gone {
		return owned, err
	}
	return freeNoted, nil
}

// give notes one run.
func (s *Service) give(ctx context.Context, n *notes, r meta.Run) error {
	hold := n.holds[r.Hold]
	switch {
	case r.Total == 0 || r.Hold == "" && n.condemned || r.Hold != "" && hold == nil:
		return nil // not known to be owned; or done by an earlier run
	case hold != nil && r.Count >= hold.Total:
		return s.forget(ctx, hold)
	}
	_, err := s.Meta.Apply(ctx, meta.Put{Record: &meta.Freed{Run: r}, Version: meta.NewVersion(s.IDs)})
	return err
}

func (s *Service) forget(ctx context.Context, r meta.Record) error {
	_, err := s.Meta.Apply(ctx, meta.Delete{Key: r.Key(), Kind: r.Kind()})
	return err
}

// condemn announces that an object that nobody holds is deleted, and reports whether that is still so
// afterwards: whoever submits an upload takes hold of it in a transaction that is refused from now on.
// One that came before keeps the upload, until its hold is dropped.
func (s *Service) condemn(ctx context.Context, o object) (bool, error) {
	put := meta.Put{
		Record:  &meta.Condemned{Object: o.key, Inline: o.inline, Expires: s.Clock.Millis().Add(tombstone)},
		Version: meta.NewVersion(s.IDs),
	}
	if _, err := s.Meta.Apply(ctx, put); err != nil {
		return false, err
	}
	n, err := s.notes(ctx, o)
	return err == nil && len(n.holds) == 0, err
}

// remove deletes objects and payload records, and then, of those of noted, what was noted of them but
// the tombstones.
func (s *Service) remove(ctx context.Context, gone, noted []object) error {
	var keys []string
	for _, o := range gone {
		if !o.inline {
			keys = append(keys, o.key)
			continue
		}
		if err := s.forget(ctx, &meta.Payload{ID: o.key}); err != nil {
			return err
		}
	}
	if len(keys) > 0 {
		if err := s.Blob.Delete(ctx, keys...); err != nil {
			return err
		}
	}
	return s.clear(ctx, noted)
}

// clear removes what is noted of deleted objects, but for the tombstones. A note that another compactor sent may
// still be on its way, so where there was one they are looked at again a grace period later, until a look finds none.
func (s *Service) clear(ctx context.Context, some []object) error {
	var freed []*meta.Freed
	var again []meta.Run
	for _, o := range some {
		n, err := s.notes(ctx, o)
		if err != nil {
			return err
		}
		if len(n.freed) > 0 {
			freed = append(freed, n.freed...)
			again = append(again, meta.Run{Object: o.key, Inline: o.inline})
		}
	}
	// Before they go: who died in between would leave nothing to look at again.
	for runs := range slices.Chunk(again, maxRuns) {
		if _, err := s.Meta.Apply(ctx, meta.PutAgain(s.Clock.Millis(), s.IDs, runs...)); err != nil {
			return err
		}
	}
	for _, f := range freed {
		if err := s.forget(ctx, f); err != nil {
			return err
		}
	}
	return nil
}
