package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// delayedCursor begins the cursor of a peek that has come to the delayed messages. No cursor of the
// use case begins with it.
const delayedCursor = "delayed:"

func (s *server) peek(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r, "segment", "offset", "from", "include_delayed", "limit", "cursor")
	if err != nil {
		return err
	}
	withDelayed, err := q.flag("include_delayed")
	if err != nil {
		return err
	}
	req, err := peekRequest(q, topic)
	if err != nil {
		return err
	}
	if withDelayed && req.Segment != "" {
		return queue.Invalid("include_delayed", nil, "cannot be given along with segment: a delayed message is in none yet")
	}
	var out []wire.Message
	cursor, inDelayed := strings.CutPrefix(req.Cursor, delayedCursor)
	if inDelayed && !withDelayed {
		return queue.Invalid("cursor", nil, "is one of a listing with include_delayed=true")
	}
	if !inDelayed {
		page, err := s.Reading.Peek(r.Context(), req)
		if err != nil {
			return err
		}
		for i := range page.Deliveries {
			f := s.frameOf(r, &page.Deliveries[i])
			eachMessage(f, func(d wire.Delivered, err error) { out = append(out, messageOf(f, &d, err)) })
		}
		if page.Next != "" {
			return s.writeJSON(w, http.StatusOK, wire.MessageList{Messages: noNil(out), NextCursor: opaque(page.Next)})
		}
		cursor = ""
	}
	next := ""
	if withDelayed {
		if out, next, err = s.peekDelayed(r, &req, cursor, out); err != nil {
			return err
		}
	}
	return s.writeJSON(w, http.StatusOK, wire.MessageList{Messages: noNil(out), NextCursor: opaque(next)})
}

// peekDelayed goes on with the delayed messages once the visible ones are through.
func (s *server) peekDelayed(r *http.Request, req *consume.PeekRequest, cursor string, out []wire.Message) ([]wire.Message, string, error) {
	topic, room := req.Topic, req.Limit-len(out)
	if room <= 0 {
		// One message is asked for to learn whether there are any: a cursor that leads to
		// nothing would be no lie, but a needless call.
		page, _, err := s.Delayed.List(r.Context(), topic, delay.Listing{Limit: 1})
		if err != nil || len(page) == 0 {
			return out, "", err
		}
		return out, delayedCursor, nil
	}
	page, next, err := s.Delayed.List(r.Context(), topic, delay.Listing{Cursor: cursor, Limit: room, Bodies: true})
	if err != nil {
		return nil, "", err
	}
	for i := range page {
		if page[i].Visible >= req.From {
			out = append(out, delayedMessage(&page[i], true))
		}
	}
	if next != "" {
		next = delayedCursor + next
	}
	return out, next, nil
}

func peekRequest(q query, topic string) (consume.PeekRequest, error) {
	req := consume.PeekRequest{Topic: topic, Segment: queue.SegmentID(q.text("segment"))}
	var err error
	if req.Limit, req.Cursor, err = q.page(); err != nil {
		return req, err
	}
	if q.has("segment") && !queue.ValidID(string(req.Segment)) {
		return req, queue.Invalid("segment", nil, "is not a segment id")
	}
	if q.has("offset") && !q.has("segment") {
		return req, queue.Invalid("segment", nil, "is needed where an offset is given")
	}
	offset, err := q.whole("offset", 0, 0, uint64(queue.MaxOffset))
	if err != nil {
		return req, err
	}
	req.Offset = queue.Offset(offset)
	if q.has("from") {
		if q.has("offset") {
			return req, queue.Invalid("from", nil, "cannot be given along with offset")
		}
		if req.From, err = wire.ParseTime("from", q.text("from")); err != nil {
			return req, err
		}
	}
	return req, nil
}

func (s *server) getMessage(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	id, err := queue.ParseMessageID(r.PathValue("id"))
	if err != nil {
		return err
	}
	found, err := s.Reading.Message(r.Context(), topic, id)
	if err != nil {
		return err
	}
	var out wire.Message
	f := s.frameOf(r, &found)
	eachMessage(f, func(d wire.Delivered, err error) { out = messageOf(f, &d, err) })
	return s.writeJSON(w, http.StatusOK, out)
}

func (s *server) readRecords(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r, "offset", "limit", "wait")
	if err != nil {
		return err
	}
	req := consume.RecordsRequest{Topic: topic, Segment: queue.SegmentID(r.PathValue("segment"))}
	if !queue.ValidID(string(req.Segment)) {
		return queue.Invalid("segment", nil, "is not a segment id")
	}
	offset, err := q.whole("offset", 0, 0, uint64(queue.MaxOffset))
	if err != nil {
		return err
	}
	req.Offset = queue.Offset(offset)
	if req.Limit, err = q.limit(queue.MaxPageSize); err != nil {
		return err
	}
	if req.Wait, err = q.seconds("wait", queue.MaxWait); err != nil {
		return err
	}
	page, err := s.Reading.Records(r.Context(), req)
	if err != nil {
		return err
	}
	return s.writeRecords(w, r, &page)
}

func (s *server) writeRecords(w http.ResponseWriter, r *http.Request, page *consume.Records) error {
	ids := make([]string, len(page.Successors))
	for i, id := range page.Successors {
		ids[i] = string(id)
	}
	next := strconv.FormatUint(uint64(page.Next), 10)
	frames := s.frames(r, page.Deliveries)
	var err error
	if accepts(r, wire.MediaTypeBatch) {
		h := w.Header()
		h.Set(wire.HeaderNextOffset, next)
		h.Set(wire.HeaderEndOfSegment, strconv.FormatBool(page.End))
		h.Set(wire.HeaderSuccessors, strings.Join(ids, ","))
		err = s.sendFrames(w, frames, listing{})
	} else {
		list := "[]"
		if len(ids) > 0 {
			list = `["` + strings.Join(ids, `","`) + `"]` // ids need no escapes
		}
		err = s.sendMessages(w, frames, listing{
			field: "records",
			more:  `,"next_offset":` + next + `,"end_of_segment":` + strconv.FormatBool(page.End) + `,"successors":` + list,
		})
	}
	if err != nil {
		return &queue.Error{Op: "answer records", Kind: queue.KindCanceled, Err: err}
	}
	return nil
}

func (s *server) frames(r *http.Request, deliveries []consume.Delivery) []*wire.Frame {
	out := make([]*wire.Frame, len(deliveries))
	for i := range deliveries {
		out[i] = s.frameOf(r, &deliveries[i])
	}
	return out
}

// writeSubscription answers with a subscription and what is in it.
func (s *server) writeSubscription(w http.ResponseWriter, r *http.Request, status int, topic string, sub *meta.Subscription) error {
	st, err := s.Reading.Status(r.Context(), topic, sub.Name)
	if err != nil {
		return err
	}
	out := subscription(topic, sub)
	out.Status = &wire.SubscriptionStatus{
		Ready: st.Ready, InFlight: st.InFlight, Delayed: st.Delayed, Segments: make([]wire.SegmentCursor, len(st.Segments)),
	}
	if st.HasOldest {
		out.Status.OldestAge = wire.Of(st.OldestAge.Seconds())
	}
	for i, seg := range st.Segments {
		out.Status.Segments[i] = wire.SegmentCursor{
			Segment: seg.Segment, Floor: seg.Floor, Next: seg.Next, End: seg.End,
			Ready: seg.Ready, InFlight: seg.InFlight, Delayed: seg.Delayed,
		}
	}
	return s.writeJSON(w, status, out)
}
