package consume

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// maxWave bounds the refs whose keys are read at one go.
const maxWave = 32

// keysOf gives the keys of the messages of r, which lie in the ref at loc, which view.at found last. If
// they are not known it reads the ref's, and those of up to refs-1 unknown ones after it that begin
// below end: they are probably wanted next. read is how many refs it read.
func (v *view) keysOf(ctx context.Context, loc segment.Located, r meta.OffsetRange, end queue.Offset, refs int) (keys []keyHash, read int, err error) {
	keys = make([]keyHash, 0, r.Len())
	if keys = v.s.keys.get(keys, v.id, r); len(keys) == r.Len() {
		return keys, 0, nil
	}
	wave := []segment.Located{loc}
	for _, next := range v.following(loc.End()) {
		if len(wave) >= min(refs, maxWave) || next.Offset >= end {
			break
		}
		span := meta.OffsetRange{Lo: next.Offset, Hi: next.End()}
		if known := v.s.keys.get(nil, v.id, span); len(known) < span.Len() {
			wave = append(wave, next)
		}
	}
	results := make([][]keyHash, len(wave))
	errs := make([]error, len(wave))
	each(len(wave), func(i int) {
		if results[i], errs[i] = v.s.readKeys(ctx, wave[i]); errs[i] == nil {
			v.s.keys.put(v.id, wave[i].Offset, results[i])
		}
	})
	if errs[0] != nil {
		return nil, len(wave), errs[0] // another's failure is told when it is asked for
	}
	return results[0][r.Lo-loc.Offset : r.Hi-loc.Offset], len(wave), nil
}

// readKeys reads the keys of a ref's messages. If its index will never be readable, they count as having
// none, and so hold nobody up: delivering them will fail, and that is dealt with there.
func (s *Service) readKeys(ctx context.Context, loc segment.Located) ([]keyHash, error) {
	if loc.Ref.Kind == meta.RefPayload {
		return []keyHash{s.keys.hash(loc.Ref.Key)}, nil
	}
	none := make([]keyHash, loc.Ref.Count)
	idx, now, err := s.index(ctx, loc)
	switch {
	case unreadable(err):
		return none, nil
	case err != nil:
		return nil, err
	}
	keys := make([]keyHash, 0, loc.Ref.Count)
	for _, e := range idx.EntriesOf(int(now.Ref.First), int(now.Ref.Count)) {
		keys = append(keys, s.keys.hash(e.Key))
	}
	if len(keys) != len(none) {
		return none, nil // the ref points outside its batch
	}
	return keys, nil
}
