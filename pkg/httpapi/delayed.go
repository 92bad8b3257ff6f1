package httpapi

import (
	"net/http"

	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func (s *server) listDelayed(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r, "limit", "cursor")
	if err != nil {
		return err
	}
	l := delay.Listing{Bodies: true}
	if l.Limit, l.Cursor, err = q.page(); err != nil {
		return err
	}
	page, next, err := s.Delayed.List(r.Context(), topic, l)
	if err != nil {
		return err
	}
	out := wire.DelayedList{Messages: make([]wire.Message, len(page)), NextCursor: opaque(next)}
	for i := range page {
		out.Messages[i] = delayedMessage(&page[i], true)
	}
	return s.writeJSON(w, http.StatusOK, out)
}

// delayedPath reads the topic and the id of a delayed message.
func delayedPath(r *http.Request) (topic string, id queue.DelayedID, err error) {
	if topic, _, err = names(r); err != nil {
		return "", id, err
	}
	if _, err = parseQuery(r); err != nil {
		return "", id, err
	}
	id, err = queue.ParseDelayedID(r.PathValue("id"))
	return topic, id, err
}

func (s *server) getDelayed(w http.ResponseWriter, r *http.Request) error {
	topic, id, err := delayedPath(r)
	if err != nil {
		return err
	}
	msg, err := s.Delayed.Get(r.Context(), topic, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, delayedMessage(&msg, true))
}

func (s *server) editDelayed(w http.ResponseWriter, r *http.Request) error {
	topic, id, err := delayedPath(r)
	if err != nil {
		return err
	}
	var in wire.DelayedPatch
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	var edit delay.Edit
	if in.Body != nil || in.BodyBase64 != nil {
		body, err := bodyOf(in.Body, in.BodyBase64)
		if err != nil {
			return err
		}
		if len(body) > queue.MaxInlineMessageBytes {
			return queue.TooLarge("body", queue.MaxInlineMessageBytes, int64(len(body)))
		}
		edit.Body = &body
	}
	if in.Headers != nil {
		if err := queue.ValidateHeaders("headers", in.Headers); err != nil {
			return err
		}
		edit.Headers = &in.Headers
	}
	if edit.Delay, err = seconds("delay", in.Delay, 0, queue.MaxMaxDelay); err != nil {
		return err
	}
	if edit == (delay.Edit{}) {
		return queue.Invalid("request", nil, "nothing to change: give body, headers or delay")
	}
	msg, err := s.Delayed.Edit(r.Context(), topic, id, edit)
	if err != nil {
		return err
	}
	// The use case does not read the body back; the caller who gave a new one knows it.
	return s.writeJSON(w, http.StatusOK, delayedMessage(&msg, msg.Body != nil))
}

func (s *server) cancelDelayed(w http.ResponseWriter, r *http.Request) error {
	topic, id, err := delayedPath(r)
	if err != nil {
		return err
	}
	if err := s.Delayed.Cancel(r.Context(), topic, id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func delayedMessage(m *delay.Message, body bool) wire.Message {
	out := wire.Message{
		DelayedID: m.ID.String(), Headers: m.Headers, CreatedAt: wire.Time(m.Created),
		VisibleAt: wire.Time(m.Visible), ExpiresAt: wire.Time(m.Expires), Size: wire.Of(m.Size),
	}
	out.Key, out.KeyBase64 = textOr64(m.Key)
	switch {
	case m.Err != nil:
		out.Error = wire.ErrorOf(m.Err)
	case body && m.Size <= queue.MaxInlineMessageBytes:
		out.Body, out.BodyBase64 = bodyText(m.Body)
	}
	return out
}
