package boltmeta

import (
	"bytes"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// queryPayloads lists one shard. The bucket is ordered by id alone, for the sake of whoever writes, so the
// range is gone through and what is of other shards is passed over, by its key.
func queryPayloads(b buckets, shard string, q meta.Range) (meta.Page, error) {
	lo, hi := []byte(q.From), []byte(q.To)
	c := b.payloads.Cursor()
	k, v := c.Seek(lo)
	next := c.Next
	if q.Reverse {
		next = c.Prev
		if k, v = c.Seek(hi); q.To == "" || k == nil {
			k, v = c.Last()
		}
	}
	var page meta.Page
	size := 0
	for ; k != nil; k, v = next() {
		id, of, ok := bytes.Cut(k, []byte{0})
		if !ok {
			return meta.Page{}, &queue.Error{Op: "query records", Subject: q.PK, Kind: queue.KindCorrupt, Message: "a key is damaged"}
		}
		above := q.To != "" && bytes.Compare(id, hi) >= 0
		below := bytes.Compare(id, lo) < 0
		if q.Reverse && below || !q.Reverse && above {
			break
		}
		if above || below || string(of) != shard {
			continue
		}
		if len(page.Items) == q.Limit || size > maxPageBytes {
			page.More = true
			break
		}
		item, err := meta.Decode(meta.Key{PK: q.PK, SK: string(id)}, v)
		if err != nil {
			return meta.Page{}, err
		}
		page.Items = append(page.Items, item)
		size += item.Size
	}
	return page, nil
}
