// Package history records what clients of a system asked and were answered, and judges by models whether
// any correct system could have answered so.
//
// Vocabulary: an operation is one call of a client, with the times of its call and its return; one whose answer
// nobody knows is open: it may have taken effect at any time since, or never. A history is the operations of
// a run. A model says what a correct system does, one operation at a time; a history is right if its operations can
// be put in an order that the model follows and that puts none before one which had returned before it
// was called (linearizability). A part is what of a history can be judged alone. A violation is a part that is
// not right.
//
// The models: log, a segment as producers and readers see it (a part is a segment); cursor, a subscription's
// deliveries (a part is one message in one subscription); lease (a part is a lease's name); name, a topic's or
// subscription's name (a part is a name).
//
// How: a Recorder takes operations down, safe for concurrent use; Check makes of each part operations
// of porcupine and lets it search for the order. What is known from outside is worked in before: where a message of
// unknown fate was seen, there it was appended; times are steps' own conditions, so that a hold cannot end early.
//
// Invariants: a history of a correct system is never refused, whatever was lost; an answer that was not recorded
// is never guessed in the system's favour where another operation contradicts it; a check that does not end in its
// time is a violation, not a pass.
//
// Non-goals: that something happens at last (a test drains and counts), the order of messages across segments,
// programs: only tests and pkg/sim link this package.
package history
