package produce

import (
	"context"
	"strings"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// uploadPrefix is where a topic's uploads lie: an object of another topic is not this one's to
// submit.
func uploadPrefix(topic queue.TopicID) string { return blob.PrefixUploads + string(topic) + "/" }

// Uploads gives presigned places for objects of the given sizes and checksums. Nothing is stored
// until the client puts them there.
func (s *Service) Uploads(ctx context.Context, topic string, terms []blob.Terms) ([]Upload, error) {
	m, err := s.Topics.Open(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := checkCount("objects", len(terms), queue.MaxReferences); err != nil {
		return nil, err
	}
	if s.Presigner == nil {
		return nil, &queue.Error{Op: "presign", Subject: topic, Kind: queue.KindUnavailable, Message: "this server presigns no uploads"}
	}
	expires := s.Clock().Add(queue.PresignTTL)
	out := make([]Upload, len(terms))
	for i, t := range terms {
		if t.Size < 0 || t.Size > queue.MaxUploadBytes {
			return nil, at("objects", i, queue.Invalid("size", int64(queue.MaxUploadBytes), "must be from 0 to %d bytes", int64(queue.MaxUploadBytes)))
		}
		key := uploadPrefix(m.ID()) + s.IDs.ID()
		req, err := s.Presigner.PresignPut(ctx, key, t, expires)
		if err != nil {
			return nil, err
		}
		out[i] = Upload{Object: key, Request: req, Expires: queue.MillisOf(expires)}
	}
	return out, nil
}

// planReferences makes a unit of each referenced object.
func (c *call) planReferences(ctx context.Context, req ReferencesRequest) error {
	pos := 0
	for i := range req.References {
		n, err := 1, error(nil)
		if i < len(req.Errors) && req.Errors[i] != nil {
			err = req.Errors[i]
			c.results = append(c.results, result{err: err})
		} else if n, err = c.planReference(ctx, &req.References[i], pos); err != nil {
			if queue.Retryable(err) {
				return err // the store's failure, not the entry's
			}
			c.results = append(c.results[:pos], result{err: at("references", i, err)})
			n = 1
		}
		pos += n
	}
	if pos > queue.MaxBatchRecords {
		return queue.Invalid("references", queue.MaxBatchRecords, "hold %d messages together, more than %d", pos, queue.MaxBatchRecords)
	}
	return nil
}

// planReference plans one object whose first message is the call's pos-th; it gives the number of
// messages.
func (c *call) planReference(ctx context.Context, ref *Reference, pos int) (int, error) {
	info, err := c.checkObject(ctx, ref)
	if err != nil {
		return 0, err
	}
	if ref.Batch {
		return c.planBatchFile(ctx, info, pos)
	}
	c.results = append(c.results, result{})
	return 1, c.planPayload(ref, info, pos)
}

// checkObject holds a referenced object against what is said of it.
func (c *call) checkObject(ctx context.Context, ref *Reference) (blob.Info, error) {
	if err := blob.ValidateKey("object", ref.Object); err != nil {
		return blob.Info{}, err
	}
	missing := &queue.Error{
		Op: "check object", Subject: ref.Object, Kind: queue.KindNotFound, Code: queue.CodeObjectNotFound, Field: "object",
		Message: "no such upload of this topic: it was not put yet, or its name is wrong",
	}
	if !strings.HasPrefix(ref.Object, uploadPrefix(c.topic.ID())) {
		return blob.Info{}, missing
	}
	info, err := c.Blob.Head(ctx, ref.Object)
	switch {
	case queue.Is(err, queue.KindNotFound):
		return blob.Info{}, missing
	case err != nil:
		return blob.Info{}, err
	case ref.Checked && info.Size != ref.Terms.Size:
		return blob.Info{}, objectInvalid(ref.Object, "size", "the object has another size than said")
	case ref.Checked && ref.Terms.HasCRC32C && info.CRC32C != ref.Terms.CRC32C:
		return blob.Info{}, objectInvalid(ref.Object, "checksum", "the object has another checksum than said")
	}
	return info, nil
}

func objectInvalid(object, field, message string) error {
	return &queue.Error{
		Op: "check object", Subject: object, Kind: queue.KindInvalid, Code: queue.CodeObjectInvalid,
		Field: field, Message: message,
	}
}

// planPayload plans one object as the body of one message. A partition_key rule that looks into the
// body finds nothing: the body is not read.
func (c *call) planPayload(ref *Reference, info blob.Info, pos int) error {
	m := &Message{Key: ref.Key, Headers: ref.Headers, Delay: ref.Delay, HasDelay: ref.HasDelay, TTL: ref.TTL, DedupID: ref.DedupID}
	var rec batch.Record
	cl, warnings, err := c.judge(m, &rec)
	if err != nil {
		return err
	}
	c.accept(pos, cl, warnings)
	c.units = append(c.units, &unit{
		ref: meta.Ref{
			Kind: meta.RefPayload, ID: c.unitID(len(c.units)), Object: ref.Object, Len: info.Size,
			CRC: info.CRC32C, HasCRC: true, Created: c.created,
			Slot: rec.Slot, Key: rec.Key, Headers: rec.Headers,
		},
		records: []record{{slot: rec.Slot, size: info.Size, pos: pos, visible: cl.visible, expires: cl.expires}},
	})
	return nil
}

// planBatchFile plans an uploaded batch by its header and index; its bodies are not read.
func (c *call) planBatchFile(ctx context.Context, info blob.Info, pos int) (int, error) {
	if info.Size < batch.HeaderSize {
		return 0, objectInvalid(info.Key, "object", "is too small for a batch")
	}
	head, err := c.Blob.Get(ctx, info.Key, blob.Span{Len: batch.HeaderSize}, nil)
	if err != nil {
		return 0, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return 0, objectInvalid(info.Key, "object", err.Error())
	}
	if h.Len() != info.Size {
		return 0, objectInvalid(info.Key, "object", "is not as long as its header says")
	}
	prefix, err := c.Blob.Get(ctx, info.Key, blob.Span{Len: int64(h.PrefixLen())}, nil)
	if err != nil {
		return 0, err
	}
	idx, err := batch.OpenIndex(prefix)
	if err != nil {
		return 0, objectInvalid(info.Key, "object", err.Error())
	}
	c.results = append(c.results, make([]result, idx.Count())...)
	records := c.indexed(idx, "messages", pos, batch.MaxBodyBytes)
	u := c.batchUnit(h, 0, records, false)
	u.ref.Object = info.Key
	return idx.Count(), nil
}
