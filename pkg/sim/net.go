package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/latency"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// stage is how far a request has come.
type stage uint8

const (
	// sent: on its way to the store.
	sent stage = iota
	// served: carried out, its answer on its way back.
	served
)

// request is one store call on its way.
type request struct {
	inst  *instance
	label string
	name  string
	key   string
	// what tells requests of one name and key apart, nth equal ones of one op.
	what string
	nth  int
	// goroutine is its caller's number.
	goroutine string
	write     bool
	// once: no store's client sends it again by itself, or the store would tell the copy.
	once  bool
	stage stage
	do    func(late bool) (any, error)
	// value and err are the answer once it is served.
	value any
	err   error
	reply chan struct{}
	// parked: its caller waits for it.
	parked bool
	since  time.Time

	// kinds are what the stores' drivers make of it. With published times it is due when it arrives and then, at
	// back, when its answer comes.
	kinds     []latency.Kind
	due, back time.Time
	// again: it arrives once more after its answer; plain: it had no fault.
	again, plain bool
}

func (r *request) less(o *request) int {
	return cmp.Or(
		cmp.Compare(r.label, o.label), cmp.Compare(r.name, o.name), cmp.Compare(r.key, o.key),
		cmp.Compare(r.what, o.what), cmp.Compare(len(r.goroutine), len(o.goroutine)), cmp.Compare(r.goroutine, o.goroutine),
	)
}

func (r *request) String() string {
	return fmt.Sprintf("%s i%d %s %s", r.label, r.inst.number, r.name, short(r.key))
}

// short cuts long keys for the history.
func short(s string) string {
	if len(s) > 90 {
		return s[:87] + "..."
	}
	return s
}

// network holds the requests of all instances.
type network struct {
	world *world

	mu     sync.Mutex // guards all below
	parked []*request
	// stray are requests that nobody waits for any more and that may still arrive.
	stray  []*request
	counts map[string]int
	closed bool
}

type labelKey struct{}

func labelOf(ctx context.Context) string {
	s, _ := ctx.Value(labelKey{}).(string)
	if s == "" {
		return "?"
	}
	return s
}

func lostAnswer(r *request) error {
	kind := queue.KindUnavailable
	if r.write {
		kind = queue.KindOutcomeUnknown
	}
	return &queue.Error{Op: r.name, Subject: r.key, Kind: kind, Message: "simulated"}
}

func refusal(r *request, kind queue.Kind) error {
	return &queue.Error{Op: r.name, Subject: r.key, Kind: kind, Message: "simulated"}
}

// send parks a request until the scheduler has answered it, or ctx ends.
func send[T any](ctx context.Context, n *network, r *request, do func(late bool) (T, error)) (T, error) {
	var none T
	r.label = labelOf(ctx)
	r.goroutine = n.world.ids.name(r.label)
	r.do = func(late bool) (any, error) { return do(late) }
	if err := n.park(ctx, r); err != nil {
		return none, err
	}
	select {
	case <-r.reply:
	case <-ctx.Done():
		if !n.abandon(r) {
			<-r.reply
			break
		}
		// A frozen process notices nothing before it goes on.
		r.inst.awaitThaw()
		if r.write && (n.world.coin(r, "abandoned", 2) || !n.withdraw(r)) {
			return none, lostAnswer(r)
		}
		return none, refusal(r, queue.KindCanceled)
	}
	r.inst.awaitThaw()
	v, _ := r.value.(T)
	return v, r.err
}

func (n *network) park(ctx context.Context, r *request) error {
	// Not under the lock: who looks at a context may have to wait for the baton.
	gone := ctx.Err() != nil
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || r.inst.dead || gone {
		return refusal(r, queue.KindCanceled)
	}
	id := strings.Join([]string{r.label, r.name, r.key, r.what}, "\x00")
	n.counts[id]++
	r.nth = n.counts[id]
	r.reply, r.parked, r.since = make(chan struct{}), true, time.Now()
	n.world.timing.send(r)
	n.parked = append(n.parked, r)
	return nil
}

// abandon takes a parked request off its caller; false if it was answered already. A write that has not
// arrived may still do so.
func (n *network) abandon(r *request) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !r.parked {
		return false
	}
	n.remove(r)
	if r.write && r.stage == sent {
		n.stray = append(n.stray, r)
	}
	return true
}

func (n *network) remove(r *request) {
	r.parked = false
	for i, p := range n.parked {
		if p == r {
			n.parked = append(n.parked[:i:i], n.parked[i+1:]...)
			return
		}
	}
}

// withdraw drops a stray request; false if it is on its way no more: while its caller was frozen it may have arrived.
func (n *network) withdraw(r *request) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, p := range n.stray {
		if p == r {
			n.stray = append(n.stray[:i:i], n.stray[i+1:]...)
			return true
		}
	}
	return false
}

// serve carries a request out; its answer is on its way.
func (n *network) serve(r *request) {
	v, err := r.do(false)
	n.mu.Lock()
	defer n.mu.Unlock()
	r.value, r.err, r.stage, r.due = v, err, served, r.back
}

// answer lets a request's caller go on.
func (n *network) answer(r *request, v any, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(r)
	r.value, r.err = v, err
	n.world.baton.give(r.goroutine)
	close(r.reply)
}

func one(k latency.Kind) []latency.Kind { return []latency.Kind{k} }

// metaNet is an instance's way to the records.
type metaNet struct {
	net  *network
	inst *instance
}

var _ meta.Store = (*metaNet)(nil)

// Get implements meta.Store.
func (m *metaNet) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	r := &request{inst: m.inst, name: "get", key: key.String(), kinds: one(latency.Read)}
	return send(ctx, m.net, r, func(bool) (meta.Item, error) {
		return m.net.world.records.Get(context.Background(), key)
	})
}

// GetAll implements meta.Store.
func (m *metaNet) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	if meta.CheckKeys(keys) != nil {
		return m.net.world.records.GetAll(ctx, keys)
	}
	r := &request{inst: m.inst, name: "get all", key: keys[0].String(), kinds: one(latency.Many)}
	return send(ctx, m.net, r, func(bool) ([]meta.Item, error) {
		return m.net.world.records.GetAll(context.Background(), keys)
	})
}

// Query implements meta.Store.
func (m *metaNet) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	r := &request{inst: m.inst, name: "query", key: q.PK + " [" + q.From + "," + q.To + ")", kinds: one(latency.Many)}
	return send(ctx, m.net, r, func(bool) (meta.Page, error) {
		page, err := m.net.world.records.Query(context.Background(), q)
		if k := (len(page.Items) + 1) / 2; err == nil && k < len(page.Items) && m.net.world.coin(r, "short", 4) {
			page.Items, page.More = page.Items[:k:k], true
		}
		return page, err
	})
}

// Apply implements meta.Store.
func (m *metaNet) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if err := meta.CheckOp(op); err != nil {
		return meta.Result{}, err
	}
	r := &request{
		inst: m.inst, name: op.Name(), key: op.Target().String(), what: tell(op), write: true, once: meta.Once(op),
		kinds: latency.OfApply(op),
	}
	return send(ctx, m.net, r, func(late bool) (meta.Result, error) {
		m.net.world.model.cause = cause{label: r.label, inst: m.inst, late: late, op: op}
		return m.net.world.records.Apply(context.Background(), op)
	})
}

// tell is what an op does, as far as it tells ops on one record apart.
func tell(op meta.Op) string {
	switch op := op.(type) {
	case meta.Settle:
		return op.Claim.String()
	case meta.Append:
		return fmt.Sprint(op.Refs[0].ID, op.Refs[0].First)
	case meta.Put:
		return fmt.Sprint(op.Version)
	}
	return ""
}

// Transact implements meta.Store.
func (m *metaNet) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if meta.CheckTransact(ops) != nil {
		return m.net.world.records.Transact(ctx, ops)
	}
	names, keys := make([]string, len(ops)), make([]string, len(ops))
	for i, op := range ops {
		names[i], keys[i] = op.Name(), op.Target().String()
	}
	kinds, _ := latency.OfTransact(ops)
	r := &request{
		inst: m.inst, write: true, what: tell(ops[0]), name: "transact (" + short(strings.Join(names, ", ")) + ")",
		key: strings.Join(keys, ", "), kinds: kinds, once: !slices.ContainsFunc(ops, func(op meta.Op) bool { return !meta.Once(op) }),
	}
	return send(ctx, m.net, r, func(late bool) ([]meta.Result, error) {
		m.net.world.model.cause = cause{label: r.label, inst: m.inst, late: late}
		return m.net.world.records.Transact(context.Background(), ops)
	})
}

// blobNet is an instance's way to the objects.
type blobNet struct {
	net  *network
	inst *instance
}

var _ blob.Store = (*blobNet)(nil)

// Create implements blob.Store.
func (b *blobNet) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	data = bytes.Clone(data)
	r := &request{inst: b.inst, name: "create object", key: prefix, write: true, kinds: one(latency.Put)}
	return send(ctx, b.net, r, func(bool) (string, error) {
		return b.net.world.objects.Create(context.Background(), prefix, data)
	})
}

// Put implements blob.Store.
func (b *blobNet) Put(ctx context.Context, key string, body io.Reader, terms blob.Terms) (blob.Info, error) {
	data, err := io.ReadAll(io.LimitReader(body, terms.Size+1))
	if err != nil {
		return blob.Info{}, err
	}
	r := &request{inst: b.inst, name: "put object", key: key, write: true, kinds: one(latency.Put)}
	return send(ctx, b.net, r, func(bool) (blob.Info, error) {
		return b.net.world.objects.Put(context.Background(), key, bytes.NewReader(data), terms)
	})
}

// Get implements blob.Store.
func (b *blobNet) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	r := &request{inst: b.inst, name: "get object", key: key, kinds: one(latency.Get)}
	out, err := send(ctx, b.net, r, func(bool) ([]byte, error) {
		return b.net.world.objects.Get(context.Background(), key, span, nil)
	})
	return append(dst, out...), err
}

// Open implements blob.Store.
func (b *blobNet) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	type opened struct {
		body io.ReadCloser
		info blob.Info
	}
	r := &request{inst: b.inst, name: "open object", key: key, kinds: one(latency.Get)}
	o, err := send(ctx, b.net, r, func(bool) (opened, error) {
		body, info, err := b.net.world.objects.Open(context.Background(), key, span)
		return opened{body, info}, err
	})
	return o.body, o.info, err
}

// Head implements blob.Store.
func (b *blobNet) Head(ctx context.Context, key string) (blob.Info, error) {
	r := &request{inst: b.inst, name: "head object", key: key, kinds: one(latency.Get)}
	return send(ctx, b.net, r, func(bool) (blob.Info, error) {
		return b.net.world.objects.Head(context.Background(), key)
	})
}

// List implements blob.Store.
func (b *blobNet) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	r := &request{inst: b.inst, name: "list objects", key: prefix, kinds: one(latency.Get)}
	return send(ctx, b.net, r, func(bool) (blob.Page, error) {
		return b.net.world.objects.List(context.Background(), prefix, after, limit)
	})
}

// Delete implements blob.Store.
func (b *blobNet) Delete(ctx context.Context, keys ...string) error {
	r := &request{inst: b.inst, name: "delete objects", key: strings.Join(keys, ", "), write: true, kinds: one(latency.Put)}
	_, err := send(ctx, b.net, r, func(bool) (struct{}, error) {
		return struct{}{}, b.net.world.objects.Delete(context.Background(), keys...)
	})
	return err
}

// PresignPut implements blob.Presigner: making a URL reaches no store.
func (b *blobNet) PresignPut(_ context.Context, key string, _ blob.Terms, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "PUT", URL: key}, nil
}

// PresignGet implements blob.Presigner.
func (b *blobNet) PresignGet(_ context.Context, key string, expires time.Time) (blob.Request, error) {
	b.net.world.model.presigned(key, queue.MillisOf(expires))
	return blob.Request{Method: "GET", URL: key}, nil
}
