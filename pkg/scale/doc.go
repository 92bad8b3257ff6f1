// Package scale lets a topic's segments follow its load: the leader.
//
// Vocabulary: a watch asks the leader to look at a topic; a measure is what is known of one open segment's
// load; a score is load relative to what one segment should carry (topics.Policy); a change replaces
// segments by others that own the same slots: a split one by several, a merge several neighbours by one.
//
// Invariants:
//   - A change is one transaction: new heads and descriptors, parents sealed, topic epoch + 1, and the event
//     that tells of it. It is conditional on the topic's version and on each parent's, so of two that would
//     change the same only one does, whoever makes them; the leader's are conditional on its lease besides.
//   - Open segments tile the ring before and after each change; children own exactly their parents' slots.
//   - The leader keeps nothing in memory: rates are in gauges, findings in events, what to look at in
//     watches.
//   - What decides is a pure function of policy, measures and time.
//
// Non-goals: routing (produce, delay), opening successors to consumers (consume).
package scale
