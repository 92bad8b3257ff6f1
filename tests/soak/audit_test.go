//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/fileblob"
	"github.com/spillway-mq/spillway/pkg/compact/compacttest"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// audit looks into the data folder of a server that has ended: everything that can be reached must be there. What is
// there and cannot be reached is for the compactor to remove.
func audit(ctx context.Context, dir string, now time.Time) (f compacttest.Findings, err error) {
	records, err := allRecords(filepath.Join(dir, "meta.db"))
	if err != nil {
		return f, err
	}
	objects, err := allObjects(ctx, filepath.Join(dir, "objects"))
	return compacttest.Audit(records, objects, queue.MillisOf(now)), err
}

// allRecords reads every record of the metadata, and with that holds each against its checksum.
func allRecords(path string) (out []meta.Item, err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		read := func(bucket string, key func(a, b string) meta.Key) error {
			return tx.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
				first, second, ok := strings.Cut(string(k), "\x00")
				if !ok {
					return fmt.Errorf("key %q in %s", k, bucket)
				}
				item, err := meta.Decode(key(first, second), v)
				out = append(out, item)
				return err
			})
		}
		err := read("records", func(pk, sk string) meta.Key { return meta.Key{PK: pk, SK: sk} })
		return errors.Join(err, read("payloads", func(id, shard string) meta.Key { return meta.Key{PK: "p/" + shard, SK: id} }))
	})
	return out, err
}

// allObjects lists all objects, and reads each, which holds it against its checksum.
func allObjects(ctx context.Context, dir string) (out []string, err error) {
	store, err := fileblob.Open(dir, time.Now, fileblob.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for _, prefix := range []string{blob.PrefixBatches, blob.PrefixUploads, blob.PrefixSegments} {
		for after, more := "", true; more; {
			page, err := store.List(ctx, prefix, after, queue.MaxPageSize)
			if err != nil {
				return nil, err
			}
			for _, info := range page.Objects {
				after = info.Key
				out = append(out, info.Key)
				if _, err := store.Get(ctx, info.Key, blob.Span{}, nil); err != nil {
					return nil, err
				}
			}
			more = page.More
		}
	}
	return out, nil
}
