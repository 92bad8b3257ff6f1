package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// isUnsupported: a writer that does not flush (a recorder, a gateway's) sends what it has in the end.
func isUnsupported(err error) bool { return errors.Is(err, http.ErrNotSupported) }

func (s *server) ack(w http.ResponseWriter, r *http.Request) error {
	var in wire.ReceiptsRequest
	return s.settle(w, r, &in, func(topic, sub string) error {
		return s.each(w, in.Receipts, func(receipts []queue.Receipt) ([]error, error) {
			return s.Consume.Ack(r.Context(), topic, sub, receipts)
		})
	})
}

func (s *server) release(w http.ResponseWriter, r *http.Request) error {
	var in wire.ReleaseRequest
	return s.settle(w, r, &in, func(topic, sub string) error {
		delay, err := seconds("delay", in.Delay, 0, queue.MaxVisibilityTimeout)
		if err != nil {
			return err
		}
		if len(in.Reason) > wire.MaxReasonBytes || !utf8.ValidString(in.Reason) {
			return queue.Invalid("reason", wire.MaxReasonBytes, "is longer than %d bytes", wire.MaxReasonBytes)
		}
		if in.DeadLetter && in.Delay != nil {
			return queue.Invalid("delay", nil, "cannot be given along with dead_letter")
		}
		how := consume.Release{
			Delay: deref(delay), HasDelay: delay != nil, Reason: in.Reason, DeadLetter: in.DeadLetter,
			Uncounted: in.CountDelivery != nil && !*in.CountDelivery,
		}
		return s.each(w, in.Receipts, func(receipts []queue.Receipt) ([]error, error) {
			return s.Consume.Release(r.Context(), topic, sub, receipts, how)
		})
	})
}

func (s *server) extend(w http.ResponseWriter, r *http.Request) error {
	var in wire.ExtendRequest
	return s.settle(w, r, &in, func(topic, sub string) error {
		if in.VisibilityTimeout == nil {
			return queue.Invalid("visibility_timeout", nil, "is needed")
		}
		visibility, err := seconds("visibility_timeout", in.VisibilityTimeout, queue.MinVisibilityTimeout, queue.MaxVisibilityTimeout)
		if err != nil {
			return err
		}
		return s.each(w, in.Receipts, func(receipts []queue.Receipt) ([]error, error) {
			return s.Consume.Extend(r.Context(), topic, sub, receipts, *visibility)
		})
	})
}

// settle is what ack, release and extend have in common before their own part.
func (s *server) settle(w http.ResponseWriter, r *http.Request, in any, do func(topic, sub string) error) error {
	topic, sub, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := s.readJSON(w, r, in); err != nil {
		return err
	}
	return do(topic, sub)
}

// each settles receipts and answers for each. One that cannot be read does not fail the others.
func (s *server) each(w http.ResponseWriter, texts []string, do func([]queue.Receipt) ([]error, error)) error {
	if err := between("receipts", len(texts), queue.MaxReceipts); err != nil {
		return err
	}
	out := wire.ReceiptsAnswer{Results: make([]wire.ReceiptResult, len(texts))}
	receipts := make([]queue.Receipt, 0, len(texts))
	places := make([]int, 0, len(texts)) // of receipts, in the call
	for i, text := range texts {
		receipt, err := queue.ParseReceipt(text)
		if err != nil {
			out.Results[i].Error = wire.ErrorOf(renameField(err, "receipts", "receipts["+strconv.Itoa(i)+"]"))
			continue
		}
		receipts, places = append(receipts, receipt), append(places, i)
	}
	if len(receipts) > 0 {
		errs, err := do(receipts)
		if err != nil {
			return err
		}
		if len(errs) != len(receipts) {
			return &queue.Error{Op: "settle", Kind: queue.KindInternal, Message: "the results do not fit the receipts"}
		}
		for i, err := range errs {
			if err != nil {
				noteEntry(w, err)
				out.Results[places[i]].Error = wire.ErrorOf(err)
			} else {
				out.Results[places[i]].OK = true
			}
		}
	}
	return s.writeJSON(w, http.StatusOK, out)
}
