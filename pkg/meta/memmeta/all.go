package memmeta

import (
	"maps"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
)

// All gives every record, in the order of the keys: what no contract offers, for tests that ask whether
// something was left behind.
func (s *Store) All() []meta.Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []meta.Item
	for _, pk := range slices.Sorted(maps.Keys(s.partitions)) {
		p := s.partitions[pk]
		for _, sk := range p.sks {
			out = append(out, *p.items[sk].item)
		}
	}
	return out
}
