package delay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// modelMessage is what the model knows of a message.
type modelMessage struct {
	id                        queue.DelayedID
	body                      string
	created, visible, expires queue.Millis
	state                     string // waiting, promoted, cancelled, expired
}

// model is a plain list of messages beside a rig.
type model struct {
	*rig
	all   []*modelMessage
	puts  int
	edits int
}

func (m *model) put(t *rapid.T) {
	g := group{
		visible: m.in(rapid.IntRange(1, 30).Draw(t, "delay")),
		slots:   spread(rapid.IntRange(1, 4).Draw(t, "messages")), name: fmt.Sprintf("p%d", m.puts),
		noSizes: false,
	}
	if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
		g.expires = m.in(rapid.IntRange(1, 40).Draw(t, "ttl"))
	}
	m.puts++
	for i, id := range m.rig.put(t, g) {
		m.all = append(m.all, &modelMessage{
			id: id, body: fmt.Sprintf("%s-%d", g.name, i), created: m.millis(), visible: g.visible, expires: g.expires, state: "waiting",
		})
	}
}

func (m *model) any(t *rapid.T) *modelMessage {
	if len(m.all) == 0 {
		m.put(t)
	}
	return m.all[rapid.IntRange(0, len(m.all)-1).Draw(t, "message")]
}

// wantGone holds an error about a message that no longer waits to what the model knows.
func (m *model) wantGone(t *rapid.T, msg *modelMessage, err error) {
	code := queue.CodeOf(err)
	ok := code == queue.CodeAlreadyPromoted
	if msg.state != "promoted" && msg.id.Visible > m.millis() {
		ok = code == queue.CodeDelayedNotFound || msg.state == "expired" && ok
	}
	if err == nil || !ok {
		t.Errorf("%s, %s: %v", msg.body, msg.state, err)
	}
}

func (m *model) edit(t *rapid.T) {
	msg := m.any(t)
	var e Edit
	body := msg.body
	if rapid.Bool().Draw(t, "edit body") {
		m.edits++
		body = fmt.Sprintf("e%d", m.edits)
		e.Body = ptr([]byte(body))
	}
	delay := time.Duration(rapid.IntRange(0, 40).Draw(t, "new delay")) * time.Second
	if e.Body == nil || rapid.Bool().Draw(t, "edit delay") {
		e.Delay = &delay
	}
	got, err := m.Edit(t.Context(), topicName, msg.id, e)
	if msg.state != "waiting" {
		m.wantGone(t, msg, err)
		return
	}
	msg.body = body
	if e.Delay != nil {
		msg.visible = max(msg.created.Add(delay), m.millis())
	}
	if err != nil || got.ID != msg.id || got.Visible != msg.visible || got.Size != int64(len(body)) || got.Expires != msg.expires {
		t.Errorf("%+v, want %+v: %v", got, msg, err)
	}
}

func (m *model) cancel(t *rapid.T) {
	msg := m.any(t)
	err := m.Cancel(t.Context(), topicName, msg.id)
	if msg.state != "waiting" {
		m.wantGone(t, msg, err)
		return
	}
	if err != nil {
		t.Error(err)
	}
	msg.state = "cancelled"
}

func (m *model) promoteDue(t *rapid.T) {
	want, wantNext := 0, queue.Millis(0)
	for _, msg := range m.all {
		switch {
		case msg.state != "waiting":
		case msg.visible > m.millis():
			wantNext = earlier(wantNext, msg.visible)
		case msg.expires != 0 && msg.expires <= m.millis():
			msg.state = "expired"
		default:
			msg.state = "promoted"
			want++
		}
	}
	if n, next := m.promote(t); n != want || next != wantNext {
		t.Errorf("promoted %d, next %v; want %d, %v", n, next, want, wantNext)
	}
}

func (m *model) check(t *rapid.T) {
	in := func(state string) (out []string) {
		for _, msg := range m.all {
			if msg.state == state {
				out = append(out, fmt.Sprint(msg.body, "@", msg.visible))
			}
		}
		slices.Sort(out)
		return out
	}
	var got []string
	for _, msg := range m.contents(t) {
		got = append(got, fmt.Sprint(msg.body, "@", msg.visible))
	}
	slices.Sort(got)
	if want := in("promoted"); !slices.Equal(got, want) {
		t.Errorf("promoted %v, want %v", got, want)
	}
	got = nil
	for _, msg := range m.waiting(t) {
		got = append(got, fmt.Sprint(string(msg.Body), "@", msg.Visible))
	}
	slices.Sort(got)
	if want := in("waiting"); !slices.Equal(got, want) {
		t.Errorf("waiting %v, want %v", got, want)
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{rig: newRig(t, delayedTopic(rapid.IntRange(1, 4).Draw(t, "segments")))}
		t.Repeat(map[string]func(*rapid.T){
			"put":     m.put,
			"edit":    m.edit,
			"cancel":  m.cancel,
			"promote": m.promoteDue,
			"pass":    func(t *rapid.T) { m.pass(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second) },
			"sweep": func(t *rapid.T) {
				if err := m.sweep(t.Context(), m.open(t).ID(), m.millis()); err != nil {
					t.Error(err)
				}
			},
			"split": func(t *rapid.T) {
				if open := m.open(t).Open; len(open) < 8 {
					m.split(t, open[rapid.IntRange(0, len(open)-1).Draw(t, "segment")])
				}
			},
			"": m.check,
		})
	})
}

// The text of an id is what a caller keeps.
func TestIDsSurviveTheirText(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	id := r.put(t, group{visible: r.in(60), slots: spread(3), name: "a"})[2]
	parsed, err := queue.ParseDelayedID(id.String())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Get(t.Context(), topicName, parsed); err != nil || !strings.HasSuffix(string(got.Body), "-2") {
		t.Errorf("%q, %v", got.Body, err)
	}
}
